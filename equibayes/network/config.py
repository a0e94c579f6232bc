"""Settings of the network, named as in NequIP, and its presets."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from equibayes.config import check, setting
from equibayes.data.elements import atomic_number
from equibayes.errors import InputError, one_line
from equibayes.network.harmonics import L_MAX


@dataclass(frozen=True)
class NetworkConfig:
    """Architecture (chosen by the user) and scales (taken from the training data by `fit_scales`)."""

    r_max: float = setting(4.0, "cutoff radius, Å", at_least=0.1, at_most=100)
    l_max: int = setting(2, "highest rotation order of features and spherical harmonics", at_least=0, at_most=L_MAX)
    parity: bool = setting(True, "use features of both parities (more expressive, slower)")
    rotations_only: bool = setting(
        False, "features have a rotation order but no parity, and every path of the triangle rule is used (SO(3))"
    )
    num_features: int | list[int] = setting(
        64, "channels, one number or one per rotation order 0 … l_max", at_least=1, limit=4096
    )
    num_layers: int = setting(5, "interaction blocks", at_least=1, limit=100)
    num_bessels: int = setting(8, "radial Bessel functions (their frequencies are sampled too)", at_least=1, limit=1000)
    polynomial_cutoff_p: int = setting(
        6, "exponent of the polynomial cutoff; smaller decays earlier", at_least=2, limit=1000
    )
    xplor_on: float | None = setting(
        None, "Å; where an XPLOR cutoff function begins to decay; none: the polynomial cutoff", at_least=0, at_most=100
    )
    self_connection: str = setting(
        "species",
        "species: one matrix per species, none in the first block; shared: one for all species, in every block",
        ("species", "shared"),
    )
    radial_mlp_depth: int = setting(2, "hidden layers of the radial network", at_least=1, limit=100)
    radial_mlp_width: int = setting(64, "neurons per hidden layer", at_least=1, limit=10**4)
    type_embed_num_features: int | None = setting(
        None, "channels of the species embedding; none: as num_features", at_least=1, limit=4096
    )
    type_names: list[str] = setting([], "chemical symbols; taken from the data when empty")
    avg_num_neighbors: float | dict[str, float] | None = setting(
        None, "normalises sums over neighbours, one number or one per type; none: from data", at_least=1e-9, limit=1e9
    )
    per_type_energy_scales: float | dict[str, float] | None = setting(
        None, "eV; scales predicted means; none: RMS force component of the training data", at_least=1e-9, limit=1e9
    )
    per_type_energy_shifts: dict[str, float] | None = setting(
        None, "eV; per-species energy shifts; none: from the energy reference of the data", at_least=-1e9, limit=1e9
    )
    per_type_energy_shifts_trainable: bool | None = setting(
        None,
        "also sample per-species energy shifts; none: if structures have more than 10 atoms on average, or the energy "
        "reference is isolated or given",
    )
    stress_head: bool | None = setting(
        None, "learn stress, with a σ of its own; none: if training frames have stress labels; false: ignore them"
    )
    covariance: str = setting(
        "isotropic", "noise of forces, as likelihood.covariance sets it", ("isotropic", "atom", "pair")
    )
    rigid_noise: float | None = setting(
        None,
        "eV/Å; with covariance=pair, noise of the labels along net force and torque; none: from data",
        at_least=1e-6,
        limit=1e6,
    )
    model_dtype: str = setting("float32", "precision of the weights", ("float32", "float64"))

    def __post_init__(self) -> None:
        check(self, "network")
        if isinstance(self.num_features, list) and len(self.num_features) != self.l_max + 1:
            raise InputError(f"network.num_features={self.num_features}: needs l_max + 1 = {self.l_max + 1} numbers")
        if self.xplor_on is not None and self.xplor_on >= self.r_max:
            raise InputError(f"network.xplor_on={self.xplor_on}: must be below network.r_max={self.r_max}")

    @property
    def channels(self) -> list[int]:
        """Channels per rotation order 0 … l_max."""
        if isinstance(self.num_features, list):
            return self.num_features
        return [self.num_features] * (self.l_max + 1)

    @property
    def embedding_channels(self) -> int:
        return self.type_embed_num_features or self.channels[0]

    @property
    def self_connections(self) -> int:
        """Matrices of a self-connection."""
        return len(self.type_names) if self.self_connection == "species" else 1

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def check_type_names(config: NetworkConfig) -> None:
    """An `InputError` unless the types are distinct elements, and every setting per type has one value for each."""
    names = config.type_names
    if not names or len(set(names)) != len(names):
        raise InputError(f"network.type_names={one_line(names)}: must be distinct chemical symbols")
    for name in names:
        atomic_number(name)
    for setting_name in ("avg_num_neighbors", "per_type_energy_scales", "per_type_energy_shifts"):
        value = getattr(config, setting_name)
        if isinstance(value, dict) and not set(names) <= set(value):
            raise InputError(f"network.{setting_name}={one_line(value)}: needs a value for each of {', '.join(names)}")


PRESETS: dict[str, NetworkConfig] = {
    # the network of the paper (appendix A.1)
    "paper": NetworkConfig(),
    # a workstation without a large GPU
    "medium": NetworkConfig(l_max=2, parity=False, num_features=32, num_layers=3),
    # two CPU cores
    "small": NetworkConfig(l_max=1, parity=False, num_features=32, num_layers=3, radial_mlp_width=32),
    # tests
    "tiny": NetworkConfig(l_max=1, parity=True, num_features=4, num_layers=2, radial_mlp_depth=1, radial_mlp_width=8),
}


def preset(name: str, **changes: Any) -> NetworkConfig:
    """A preset by name, with some settings changed."""
    if name not in PRESETS:
        raise InputError(f"network preset '{name}' does not exist; choose one of {', '.join(PRESETS)}")
    return replace(PRESETS[name], **changes)
