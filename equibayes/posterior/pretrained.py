"""Networks that were trained elsewhere, as they are: read by name or from a file, described, used for predictions."""

from pathlib import Path
from typing import Any

import torch

from equibayes.bayes.model import StochasticModel
from equibayes.data.elements import atomic_number
from equibayes.data.reference import EnergyReference
from equibayes.errors import InputError
from equibayes.labelling.baseline import Baseline
from equibayes.network.official import PACKAGE, load_official
from equibayes.network.pretrained import NAMES, Pretrained, find
from equibayes.network.sevennet import load_sevennet
from equibayes.plural import counted
from equibayes.posterior.file import Posterior

SUFFIXES = (".pth", ".ckpt", PACKAGE)
"""Of files with one set of weights."""


def is_pretrained(name: str) -> bool:
    """Whether this is a name of `NAMES` or such a file, with a fidelity or without."""
    return name.partition(":")[0] in NAMES or name.partition(":")[0].endswith(SUFFIXES)


def load_pretrained(name: str) -> Pretrained:
    """The network of a name or a file, NAME:FIDELITY where it has several."""
    path, fidelity = file_of(name)
    named = NAMES.get(name.partition(":")[0])
    if path.suffix == ".pth":
        return load_sevennet(path, fidelity, named.origin if named else "", name.partition(":")[0])
    if fidelity is not None:
        raise InputError(f"{path}: has no fidelities to choose from; leave :{fidelity} out")
    if path.name.endswith(SUFFIXES):
        return load_official(path)
    raise InputError(
        f"{name}: not a pretrained network; name one of {', '.join(NAMES)} or a file {', '.join(SUFFIXES)}"
    )


def file_of(name: str) -> tuple[Path, str | None]:
    """The file, and the fidelity that follows a colon."""
    if name not in NAMES and Path(name).exists():
        return Path(name), None
    first, _, fidelity = name.partition(":")
    return find(first)[0], fidelity or None


def as_posterior(model: Pretrained) -> Posterior:
    """One set of weights, whose noise heads know nothing: energies, forces and stress mean something, no σ does."""
    size = model.weights.shape[1]
    layout = StochasticModel(model.config).layout
    flat = layout.start(1, 0, getattr(torch, model.config.model_dtype))
    flat[:, :size] = model.weights.to(flat)
    reference = EnergyReference("given", {atomic_number(name): shift for name, shift in model.shifts.items()})
    none = torch.zeros(1, dtype=torch.int64)
    return Posterior(flat, none, none, model.config, reference, baseline=baseline_of(model))


def baseline_of(model: Pretrained) -> Baseline | None:
    """The repulsion of nuclei that a model adds to its network."""
    return None if model.repulsion is None else Baseline.of("zbl", model.repulsion)


class PretrainedSummary:
    """`lines()` pairs headings with text; `to_dict()` holds settings and where the weights come from."""

    def __init__(self, name: str) -> None:
        self.name, self.path = name, file_of(name)[0]
        self.model = load_pretrained(name)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, in eV and Å."""
        return {
            "name": self.name,
            "file": str(self.path),
            "origin": self.model.origin,
            "parameters": self.model.weights.shape[1],
            "network": self.model.config.to_dict(),
        }

    def lines(self) -> list[tuple[str, str]]:
        network = self.model.config
        group = "rotations only" if network.rotations_only else "both parities" if network.parity else "one parity"
        features = ", ".join(map(str, network.channels))
        names = network.type_names
        return [
            ("pretrained", f"{self.name}: one set of weights, without σ of its own"),
            ("file", str(self.path)),
            ("origin", self.model.origin or "unknown: the file does not say"),
            (
                "network",
                f"NequIP with {counted(network.num_layers, 'layer')}, l ≤ {network.l_max}, {group}, {features} features, "
                f"cutoff {network.r_max:g} Å: {counted(self.model.weights.shape[1], 'weight')}",
            ),
            *([("repulsion", str(baseline_of(self.model)))] if self.model.repulsion else []),
            ("species", f"{len(names)}: {' '.join(names)}"),
            ("use", f"equibayes sample frames.xyz -o mine.posterior --from {self.name}"),
        ]

    def __str__(self) -> str:
        lines = self.lines()
        width = max(len(heading) for heading, _ in lines)
        return "\n".join(f"{heading:<{width}}  {text}" for heading, text in lines)
