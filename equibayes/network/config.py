"""The network's settings, named as in NequIP, and its presets."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from equibayes.config import setting
from equibayes.errors import InputError
from equibayes.network.harmonics import L_MAX


@dataclass(frozen=True)
class NetworkConfig:
    """Architecture (chosen by the user) and scales (taken from the training data by `fit_scales`)."""

    r_max: float = setting(4.0, "cutoff radius, Å")
    l_max: int = setting(2, "highest rotation order of features and spherical harmonics, 0 to 3")
    parity: bool = setting(True, "carry features of both parities (more expressive, slower)")
    num_features: int | list[int] = setting(64, "channels, one number or one per rotation order 0 … l_max")
    num_layers: int = setting(5, "interaction blocks")
    num_bessels: int = setting(8, "radial Bessel functions (their frequencies are sampled too)")
    polynomial_cutoff_p: int = setting(6, "exponent of the polynomial cutoff; smaller decays earlier")
    radial_mlp_depth: int = setting(2, "hidden layers of the radial network")
    radial_mlp_width: int = setting(64, "neurons in each of them")
    type_embed_num_features: int | None = setting(None, "channels of the species embedding; none: as num_features")
    type_names: list[str] = setting([], "chemical symbols; taken from the data when empty")
    avg_num_neighbors: float | dict[str, float] | None = setting(
        None, "normalises sums over neighbours, one number or one per type; none: from data"
    )
    per_type_energy_scales: float | dict[str, float] | None = setting(
        None, "eV; scales predicted means; none: RMS force component of the training data"
    )
    per_type_energy_shifts: dict[str, float] | None = setting(
        None, "eV; energy of each species at rest; none: by the energy reference of the data"
    )
    per_type_energy_shifts_trainable: bool | None = setting(
        None, "sample an energy of each species too; none: if structures have over 10 atoms on average"
    )
    model_dtype: str = setting("float32", "float32 or float64")

    def __post_init__(self) -> None:
        if not 0 <= self.l_max <= L_MAX:
            raise InputError(f"network.l_max={self.l_max}: must be 0 to {L_MAX}")
        if not 0 < self.r_max < 100:
            raise InputError(f"network.r_max={self.r_max}: must be a length in Å between 0 and 100")
        if self.num_layers < 1 or self.num_bessels < 1 or self.radial_mlp_depth < 1 or self.radial_mlp_width < 1:
            raise InputError(
                "network: num_layers, num_bessels, radial_mlp_depth and radial_mlp_width must be at least 1"
            )
        if self.polynomial_cutoff_p < 2:
            raise InputError(
                f"network.polynomial_cutoff_p={self.polynomial_cutoff_p}: must be at least 2 for smooth forces"
            )
        if isinstance(self.num_features, list) and len(self.num_features) != self.l_max + 1:
            raise InputError(f"network.num_features={self.num_features}: needs l_max + 1 = {self.l_max + 1} numbers")
        if min(self.channels) < 1:
            raise InputError(f"network.num_features={self.num_features}: must be at least 1")
        if self.model_dtype not in ("float32", "float64"):
            raise InputError(f"network.model_dtype={self.model_dtype}: must be float32 or float64")

    @property
    def channels(self) -> list[int]:
        """Channels for each rotation order 0 … l_max."""
        if isinstance(self.num_features, list):
            return self.num_features
        return [self.num_features] * (self.l_max + 1)

    @property
    def embedding_channels(self) -> int:
        return self.type_embed_num_features or self.channels[0]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


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
