"""Sampling and training for the studies.  All calls into equibayes that start a run are here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from equibayes.baselines.contestants import Contestant, obtain
from equibayes.data import Dataset
from equibayes.learning.resample import ResampleSettings, resample
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.sample import sample, sample_prepared
from equibayes.run import Run
from equibayes.run.prepare import lay_out
from equibayes.run.progress import Display
from equibayes.run.settings import SampleConfig, sample_config


@dataclass(frozen=True)
class SmallNetwork:
    """Chains of a small network that a CPU samples in minutes; one sample per chain.

    first, warm  steps per chain, for the first posterior and for each that continues from it
    initial, final  learning rates of the burn-in (None: those of the preset `quick`)
    noise_free   first fraction of the burn-in without noise and prior
    mass         of the sampler
    """

    chains: int = 4
    first: int = 6000
    warm: int = 1500
    features: int = 16
    layers: int = 2
    radial_depth: int = 1
    radial_width: int | None = None
    network: str = "small"
    batch_size: int | None = None
    initial: float | None = None
    final: float | None = None
    noise_free: float = 0.9
    mass: str = "matrix"

    def config(self, seed: int) -> SampleConfig:
        burn_in: dict[str, Any] = {"steps": self.first, "epochs": None, "noise_free": self.noise_free}
        for name in ("batch_size", "initial", "final"):
            if getattr(self, name) is not None:
                burn_in[name] = getattr(self, name)
        values: dict[str, Any] = {
            "seed": seed,
            "chains": self.chains,
            "samples": self.chains,
            "data": {"validation": 0},
            "network": {
                "num_features": self.features,
                "num_layers": self.layers,
                "radial_mlp_width": self.radial_width or self.features,
                "radial_mlp_depth": self.radial_depth,
            },
            "burn_in": burn_in,
            "sampler": {"mass": self.mass},
            "output": {"validations": 0},
        }
        return sample_config("quick", self.network, values)

    def warm_start(self, **changes: Any) -> ResampleSettings:
        """Of the same kind as the first run."""
        known = {"noise_free": self.noise_free} if self.noise_free else {}
        return ResampleSettings(burn_in=self.warm / self.first, **known, **changes)


def sampled(
    data: Dataset,
    config: SampleConfig,
    path: Path | None = None,
    *,
    device: str = "cpu",
    display: Display | None = None,
) -> Posterior:
    """The posterior.  With a path it is kept there: loaded if complete, continued if interrupted."""
    if path is not None and path.exists():
        return load(path)
    found = sample(data, config, run=_run(path, device, display))
    return found if path is None else load(path)


def sampled_all(
    train: Dataset, held_back: Dataset, config: SampleConfig, path: Path | None = None, *, device: str = "cpu"
) -> Posterior:
    """The same with the held-back frames given; they may be none."""
    if path is not None and path.exists():
        return load(path)
    found = sample_prepared(lay_out(train, held_back, config), train, _run(path, device))
    return found if path is None else load(path)


def resampled(
    before: Posterior,
    train: Dataset,
    config: SampleConfig,
    settings: ResampleSettings,
    path: Path | None = None,
    *,
    held_back: Dataset | None = None,
    seen: Dataset | None = None,
    device: str = "cpu",
) -> Posterior:
    """The posterior given more frames, from chains that start where those of `before` ended."""
    if path is not None and path.exists():
        return load(path)
    none = train[:0] if held_back is None else held_back
    found = resample(before, train, none, config, settings, seen=seen, run=_run(path, device))
    return found if path is None else load(path)


def contestant(
    method: str,
    data: Dataset,
    config: SampleConfig,
    folder: Path,
    *,
    validation: Dataset | None = None,
    device: Any = "cpu",
    display: Display | None = None,
) -> Contestant:
    """A method of `equibayes compare`, from the folder where it is complete or was interrupted."""
    return obtain(method, data, config, folder, validation=validation, run=Run(device=device, display=display))


def _run(path: Path | None, device: Any, display: Display | None = None) -> Run:
    """A run that is kept at a path, if there is one, and continued where it was interrupted."""
    run = Run(device=device, display=display)
    return run if path is None else run.to(path, resume_if_begun=True)
