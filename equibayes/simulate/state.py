"""The saved state of a simulation, from which `--resume` continues bit for bit.  The file is complete or absent."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes import expect, tensor_file
from equibayes.errors import InputError, one_line
from equibayes.simulate.statistics import Statistics
from equibayes.simulate.trust import STATES

FARTHEST = 1e9
"""No position, momentum or variable of an integrator is larger, in its unit."""
FORMAT = "equibayes-md-state"
VERSION = 1
_PLAIN = ("step", "rng", "lengths", "last_candidate", "candidates", "last_state", "asked", "jump", "looked", "engine")
"""Fields that are JSON as they are."""


@dataclass(frozen=True, eq=False)
class MdState:
    """A simulation after `step` steps.

    memory          arrays of the integrator (see `Integrator.memory`)
    rng             state of the random number generator
    statistics      sums so far
    lengths         bytes of the growing files, by name
    last_candidate  step of the last candidate that was written
    candidates      number of candidates written
    last_state      trust state of the last frame, one of `trust.STATES`
    asked           number of queries to the oracle
    jump            eV by which the replies changed the potential energy
    engine          what computed the forces; empty in early files
    looked          whether the frame of this step has been judged and written; false only before the first step
    identity        what the simulation is: another one cannot be resumed from this state
    """

    step: int
    memory: dict[str, np.ndarray]
    rng: dict[str, Any]
    statistics: Statistics
    lengths: dict[str, int]
    last_candidate: int | None = None
    candidates: int = 0
    last_state: str = "trusted"
    asked: int = 0
    jump: float = 0.0
    looked: bool = True
    engine: str = ""
    identity: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        header = {name: getattr(self, name) for name in _PLAIN}
        header |= {"statistics": asdict(self.statistics), "about": self.identity}
        tensors = {name: torch.from_numpy(array.copy()) for name, array in self.memory.items()}
        tensor_file.write(path, tensors, header, format=FORMAT, version=VERSION)


def load_state(path: Path, identity: dict[str, Any]) -> MdState:
    """Read and verify; an `InputError` if the state belongs to a simulation other than `identity`."""
    if not path.exists():
        raise InputError(f"{path}: no such file, so nothing to resume from; start without --resume")
    header, tensors = tensor_file.read(path, format=FORMAT, version=VERSION, what="state of a simulation")
    try:
        _check(header, tensors)
    except InputError as cause:
        raise InputError(
            f"{path}: this state of a simulation makes no sense ({cause}); start again with --overwrite"
        ) from cause
    for name, value in identity.items():
        before = header["about"].get(name)
        if before != value:
            raise InputError(
                f"--resume: {name} was {_short(before)} and is {_short(value)} now; use the same, "
                "or start again with --overwrite"
            )
    plain: dict[str, Any] = {name: header[name] for name in _PLAIN if name in header}  # early files lack the last ones
    memory, statistics = {name: tensor.numpy() for name, tensor in tensors.items()}, Statistics(**header["statistics"])
    return MdState(memory=memory, statistics=statistics, identity=header["about"], **plain)


def _check(header: dict[str, Any], tensors: tensor_file.Tensors) -> None:
    """An `InputError` that names the first value that no simulation leaves."""
    expect.section(header.get("about"), "about")
    expect.plain(header["about"], "about")
    for name in ("step", "candidates"):
        expect.whole(header.get(name), name)
    expect.whole(header.get("asked", 0), "asked")
    expect.number(header.get("jump", 0.0), "jump")
    expect.text(header.get("engine", ""), "engine")
    if header.get("last_candidate") is not None:
        expect.whole(header["last_candidate"], "last_candidate")
    if header.get("last_state") not in (*STATES,):
        raise InputError(f"last_state={one_line(header.get('last_state'), 40)}: must be one of {', '.join(STATES)}")
    if not isinstance(header.get("looked", True), bool):
        raise InputError(f"looked={one_line(header['looked'], 40)}: must be true or false")
    lengths = expect.section(header.get("lengths"), "lengths")
    for name in ("md.log", "candidates.xyz", "trajectory"):
        expect.whole(lengths.get(name), f"lengths.{name}")
    Statistics.check(header.get("statistics"))
    rng: Any = header.get("rng")
    try:
        np.random.default_rng(0).bit_generator.state = rng
    except (TypeError, ValueError, KeyError, OverflowError, AttributeError) as cause:
        raise InputError(f"rng is no state of a random number generator ({one_line(cause, 60)})") from cause
    atoms = tensors["positions"].shape[0] if "positions" in tensors and tensors["positions"].ndim else 0
    for name, shape in {"positions": (atoms, 3), "momenta": (atoms, 3), "cell": (3, 3)}.items():
        if name not in tensors:
            raise InputError(f"{name} is missing")
        expect.array(tensors[name], name, shape)
    for name, tensor in tensors.items():
        expect.array(tensor.abs(), name, tuple(tensor.shape))
        if tensor.dtype != torch.float64 or bool((tensor.abs() > FARTHEST).any()):
            raise InputError(f"{name} has values that are not in double precision or beyond {FARTHEST:g}")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:12]}…"
