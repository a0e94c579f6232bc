"""Networks that were trained elsewhere: what every importer returns, and the names by which some of them are known."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from equibayes.errors import InputError, one_line
from equibayes.network.config import NetworkConfig
from equibayes.network.nequip import NequIP

PER_TYPE = ("avg_num_neighbors", "per_type_energy_scales", "per_type_energy_shifts")


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A converted model.

    config     settings of our network
    weights    [1, P] float64 in our layout, without deviation heads
    shifts     energy per species, eV, by chemical symbol
    origin     who made the weights, from what, and under which licence: a sentence for the user
    repulsion  settings of a ZBL term that is added to the energy (labelling/zbl.py); None: there is none
    """

    config: NetworkConfig
    weights: torch.Tensor
    shifts: dict[str, float]
    origin: str = ""
    repulsion: dict[str, float] | None = None

    def restricted(self, names: Sequence[str]) -> "Pretrained":
        """The same function of structures of these species alone; rows of the others are left out."""
        config, weights = restrict(self.config, self.weights, names)
        return replace(self, config=config, weights=weights, shifts={name: self.shifts[name] for name in names})


def restrict(config: NetworkConfig, weights: torch.Tensor, names: Sequence[str]) -> tuple[NetworkConfig, torch.Tensor]:
    """Settings and weights [S, P] for these species alone.  What lies behind the network in a row, its heads, stays."""
    known = config.type_names
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"{unknown[0]} is not among the species of the pretrained network: {one_line(known)}")
    changes: dict[str, object] = {"type_names": list(names)}
    for setting in PER_TYPE:
        value = getattr(config, setting)
        changes[setting] = {name: value[name] for name in names} if isinstance(value, dict) else value
    chosen, layout = replace(config, **changes), NequIP(config).layout  # type: ignore[arg-type]
    rows, views = [known.index(name) for name in names], layout.views(weights[:, : layout.size])
    for parameter in layout.parameters:
        if parameter.per_type:
            views[parameter.name] = views[parameter.name][:, rows]
    return chosen, torch.cat([layout.flatten(views), weights[:, layout.size :]], 1)


@dataclass(frozen=True)
class Named:
    """A model that lies inside an installed package, which is not imported."""

    package: str
    file: str
    origin: str


_SEVENNET = "SevenNet (MDIL-SNU), weights from the sevenn package, MIT licence;"
NAMES = {
    "7net-0": Named(
        "sevenn",
        "pretrained_potentials/SevenNet_0__11Jul2024/checkpoint_sevennet_0.pth",
        f"{_SEVENNET} trained on MPtrj (PBE, PBE+U); Park et al., J. Chem. Theory Comput. 20, 4857 (2024)",
    ),
    "7net-l3i5": Named(
        "sevenn",
        "pretrained_potentials/SevenNet_l3i5/checkpoint_l3i5.pth",
        f"{_SEVENNET} trained on MPtrj (PBE, PBE+U); Park et al., J. Chem. Theory Comput. 20, 4857 (2024)",
    ),
    "7net-mf-0": Named(
        "sevenn",
        "pretrained_potentials/SevenNet_MF_0/checkpoint_sevennet_mf_0.pth",
        f"{_SEVENNET} trained on MPtrj (PBE) and r2SCAN; Kim et al., J. Am. Chem. Soc. 147, 1042 (2025)",
    ),
}


def find(name: str) -> tuple[Path, Named | None]:
    """The file of a name in `NAMES`, or of a path; an `InputError` with the remedy where there is none."""
    if name not in NAMES:
        path = Path(name)
        if not path.exists():
            raise InputError(f"{name}: no such file, and not one of the known models {', '.join(NAMES)}")
        return path, None
    named = NAMES[name]
    package = importlib.util.find_spec(named.package)
    if package is None or not package.submodule_search_locations:
        raise InputError(
            f"{name}: its weights lie in the package {named.package}, which is not installed "
            f"(pip install {named.package}, or give the path of the file {Path(named.file).name})"
        )
    path = Path(package.submodule_search_locations[0]) / named.file
    if not path.exists():
        raise InputError(f"{name}: {path} is missing; give the path of the file {path.name}")
    return path, named
