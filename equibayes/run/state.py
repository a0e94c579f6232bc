"""The state of a run: sampler, guard, samples and history.

A copy is a rollback point; a copy on disk is a checkpoint.
"""

from dataclasses import dataclass, field
from typing import Any

import torch

from equibayes.run.checkpoint import Checkpoint
from equibayes.sampling import sghmc

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
    engine: str = ""

    @classmethod
    def start(cls, position: torch.Tensor, *, average: bool = False) -> "RunState":
        """At given weights, with zero momentum."""
        chains = len(position)
        return cls(
            sampler=sghmc.init(position),
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
        record["engine"] = self.engine
        return Checkpoint(tensors, record)

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
            engine=record.get("engine", "reference" if inner["position"].device.type == "cpu" else ""),
            average=tensors["average"].to(device) if "average" in tensors else None,
            **{name: tensors[name] for name in TENSORS},  # type: ignore[arg-type]
        )
