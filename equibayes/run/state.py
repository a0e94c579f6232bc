"""The state of a run: sampler, guard, samples and history.

A copy is a rollback point; a copy on disk is a checkpoint.
"""

from dataclasses import dataclass, field
from typing import Any

import torch

from equibayes import expect
from equibayes.errors import InputError
from equibayes.run.checkpoint import Checkpoint
from equibayes.run.history import check_history
from equibayes.run.patience import NEVER, Waited
from equibayes.sampling import sghmc
from equibayes.sampling.basis import Blocks

SMALLEST_MASS = 1e-12
"""Far below ε, which is added to every mass."""
TENSORS = ("slowdown", "cap", "rollbacks", "failed", "looks")


@dataclass
class RunState:
    """
    sampler    θ, r, mass and step of the K chains
    slowdown   [K] float64  factor on the learning rate of each chain; halved at each rollback
    cap        [K] float64  largest learning rate that the curvature allows, infinite where it was not estimated
    rollbacks  [K] int64    since the last sample
    failed     [K] bool     diverged too often and given up
    looks      [n, K]       û at the guard's last looks
    average    [K, P]       moving average of the weights, for point estimates; None for a posterior
    samples    [n, K, P]    kept so far, on the CPU
    kept       [n, K] bool  which of them count (a chain that failed gives none)
    history    records of the run, JSON-able, without wall-clock times
    events     what the guard did, in words
    waited     of early stopping
    lost       why chains could not be run to their end, by number; on a cluster only
    engine     what made the latest steps; empty before the first
    """

    sampler: sghmc.State
    slowdown: torch.Tensor
    cap: torch.Tensor
    rollbacks: torch.Tensor
    failed: torch.Tensor
    looks: torch.Tensor
    average: torch.Tensor | None = None
    samples: list[torch.Tensor] = field(default_factory=list)
    kept: list[torch.Tensor] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    lost: dict[int, str] = field(default_factory=dict)
    waited: Waited = NEVER
    engine: str = ""

    @classmethod
    def start(cls, position: torch.Tensor, *, average: bool = False, blocks: Blocks = ()) -> "RunState":
        """At given weights, with zero momentum; blocks: of a matrix mass."""
        chains = len(position)
        return cls(
            sampler=sghmc.init(position, blocks=blocks),
            slowdown=torch.ones(chains, dtype=torch.float64),
            cap=torch.full((chains,), torch.inf, dtype=torch.float64),
            rollbacks=torch.zeros(chains, dtype=torch.int64),
            failed=torch.zeros(chains, dtype=torch.bool),
            looks=torch.zeros(0, chains, dtype=torch.float64),
            average=position.clone() if average else None,
        )

    @property
    def step(self) -> int:
        return int(self.sampler.step)

    def copy(self) -> "RunState":
        """An independent copy; samples and records are shared, because they never change."""
        return RunState(
            sghmc.clone(self.sampler),
            self.slowdown.clone(),
            self.cap.clone(),
            self.rollbacks.clone(),
            self.failed.clone(),
            self.looks.clone(),
            None if self.average is None else self.average.clone(),
            list(self.samples),
            list(self.kept),
            list(self.history),
            list(self.events),
            dict(self.lost),
            self.waited,
            self.engine,
        )

    def restore_chains(self, chains: torch.Tensor, earlier: "RunState") -> None:
        """Restore the marked chains [K] from an earlier state; the others and the step counter stay."""
        rows = chains.to(self.sampler.position.device)
        now, then = sghmc.to_tensors(self.sampler), sghmc.to_tensors(earlier.sampler)
        for name, tensor in now.items():
            if tensor.ndim == 2:
                tensor[rows] = then[name][rows]
        if self.average is not None and earlier.average is not None:
            self.average[rows] = earlier.average[rows]

    def to_checkpoint(self, about: dict[str, Any]) -> Checkpoint:
        """about: identifies the run (configuration, data), so that another run cannot resume from it."""
        tensors = {f"sampler.{name}": tensor for name, tensor in sghmc.to_tensors(self.sampler).items()}
        for name in TENSORS:
            tensors[name] = getattr(self, name)
        if self.average is not None:
            tensors["average"] = self.average
        for number, (sample, kept) in enumerate(zip(self.samples, self.kept)):
            tensors[f"sample.{number}"], tensors[f"kept.{number}"] = sample, kept
        record = {"about": about, "samples": len(self.samples), "history": self.history, "events": self.events}
        if self.waited is not NEVER:
            record["waited"] = {"error": self.waited.error, "times": self.waited.times}
            if self.waited.best is not None:
                tensors["best"] = self.waited.best
        record["engine"] = self.engine
        return Checkpoint(tensors, record)

    @staticmethod
    def check(checkpoint: Checkpoint) -> None:
        """An `InputError` that names the first value of a checkpoint that no run leaves."""
        tensors, record = checkpoint
        shape = tuple(_tensor(tensors, "sampler.position").shape)
        if len(shape) != 2 or not all(shape):
            raise InputError(f"sampler.position has shape {shape}, not (chains, weights)")
        chains = shape[0]
        _check_marks(tensors, "failed", chains)
        good = ~tensors["failed"]  # a chain that was given up may hold anything
        lowest = {"sampler.mass.average": 0.0, "sampler.mass.maximum": 0.0, "sampler.mass.mass": SMALLEST_MASS}
        for name in ("sampler.position", "sampler.momentum", *lowest, *(["average"] if "average" in tensors else [])):
            if tuple(_tensor(tensors, name).shape) != shape:
                raise InputError(f"{name} has shape {tuple(tensors[name].shape)}, not {shape}")
            expect.array(tensors[name][good], name, (None, shape[1]), lowest.get(name))
            if tensors[name].dtype != tensors["sampler.position"].dtype:
                raise InputError(f"{name} and sampler.position differ in precision")
        for name in ("sampler.mass.basis", "sampler.mass.factors"):
            if name in tensors:  # of a matrix mass
                expect.array(tensors[name][good], name, (None, None))
        if "waited" in record:
            waited = expect.section(record["waited"], "waited")
            expect.whole(waited.get("times"), "waited.times")
            if set(waited) != {"error", "times"} or not isinstance(waited["error"], float):
                raise InputError("waited is not what early stopping keeps")
        if "best" in tensors:
            expect.array(tensors["best"][good], "best", (None, shape[1]))
        for name in ("sampler.step", "sampler.mass.updates"):
            expect.counts(_tensor(tensors, name), name, ())
        expect.array(_tensor(tensors, "slowdown"), "slowdown", (chains,), 0.0)
        expect.array(_tensor(tensors, "cap").nan_to_num(-1.0, 1.0), "cap", (chains,), 0.0)  # infinite: no limit
        expect.counts(_tensor(tensors, "rollbacks"), "rollbacks", (chains,))
        looks = _tensor(tensors, "looks")
        if looks.ndim != 2 or looks.shape[1] != chains or not looks.is_floating_point():
            raise InputError(f"looks has shape {tuple(looks.shape)}, not (any, {chains})")
        for number in range(expect.whole(record.get("samples"), "samples", 0, len(tensors))):
            expect.array(_tensor(tensors, f"sample.{number}").nan_to_num(0.0), f"sample.{number}", shape)
            _check_marks(tensors, f"kept.{number}", chains)
        expect.texts(record.get("events"), "events")
        check_history(record.get("history"), chains)
        expect.section(record.get("about"), "about")
        expect.text(record.get("engine", ""), "engine")

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, device: torch.device | str) -> "RunState":
        tensors, record = checkpoint
        inner = {name.removeprefix("sampler."): t for name, t in tensors.items() if name.startswith("sampler.")}
        # counters stay on the CPU, where reading them does not wait for a device
        inner = {name: tensor.to(device) if tensor.ndim else tensor for name, tensor in inner.items()}
        numbers = range(record["samples"])
        return cls(
            sampler=sghmc.from_tensors(inner),
            samples=[tensors[f"sample.{n}"] for n in numbers],
            kept=[tensors[f"kept.{n}"] for n in numbers],
            history=record["history"],
            events=record["events"],
            waited=_waited(record, tensors, device),
            engine=record.get("engine", "reference" if inner["position"].device.type == "cpu" else ""),
            average=tensors["average"].to(device) if "average" in tensors else None,
            **{name: tensors[name] for name in TENSORS},  # type: ignore[arg-type]
        )


def _waited(record: dict[str, Any], tensors: dict[str, torch.Tensor], device: torch.device | str) -> Waited:
    """Of a checkpoint; those of runs without early stopping say nothing about it."""
    if "waited" not in record:
        return NEVER
    return Waited(**record["waited"], best=tensors["best"].to(device) if "best" in tensors else None)


def _tensor(tensors: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    if name not in tensors:
        raise InputError(f"{name} is missing")
    return tensors[name]


def _check_marks(tensors: dict[str, torch.Tensor], name: str, chains: int) -> None:
    found = _tensor(tensors, name)
    if found.dtype != torch.bool or tuple(found.shape) != (chains,):
        raise InputError(f"{name} is not one mark for each of {chains} chains")
