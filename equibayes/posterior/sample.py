"""From a data set to a posterior in one call: what `equibayes sample` does."""

import hashlib
from collections.abc import Callable, Sequence
from glob import escape
from pathlib import Path
from typing import Any

import torch

from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import CentredNormal
from equibayes.config import template
from equibayes.data.dataset import Dataset
from equibayes.data.resident import ResidentData
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.files import lock, make_folder, remove_leftovers, write_text
from equibayes.posterior.file import Posterior
from equibayes.run import checkpoint
from equibayes.run.cluster.connect import ClusterOptions
from equibayes.run.cluster.driver import began_on_cluster, forget
from equibayes.run.loop import ChainRunner
from equibayes.run.prepare import Prepared, center_weights, make_prior, prepare
from equibayes.run.progress import Display, Silent
from equibayes.run.settings import SampleConfig, sample_config
from equibayes.run.state import RunState
from equibayes.run.verdict import judge
from equibayes.sampling.noise import NoiseKey, standard_normal

START_SHARE = 0.1
STREAM_START = 5  # of the counter-based noise; chains have the smaller numbers


def sample(
    data: Dataset,
    config: SampleConfig | None = None,
    *,
    validation: Dataset | None = None,
    output: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: torch.device | str | None = None,
    display: Display | None = None,
    cluster: ClusterOptions | None = None,
) -> Posterior:
    """Sample the posterior of a network given a data set.

    validation frames held back already, in place of data.validation of `data` (which must then be 0)
    output     where to write the posterior file; checkpoints, metrics and the effective settings go to a folder beside it
    resume     continue a run that was interrupted, bit for bit
    overwrite  replace an earlier output and its run; without it they are an `InputError`
    device     cpu, cuda, …; by default a GPU if there is one
    cluster    the Ray cluster on whose devices the chains run; None: all on this one
    """
    prepared = prepare(data, config or sample_config(), validation)
    return sample_prepared(
        prepared,
        data,
        output=output,
        resume=resume,
        overwrite=overwrite,
        device=device,
        display=display,
        cluster=cluster,
    )


def sample_prepared(
    prepared: Prepared,
    data: Dataset,
    *,
    start: torch.Tensor | None = None,
    output: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: torch.device | str | None = None,
    display: Display | None = None,
    cluster: ClusterOptions | None = None,
) -> Posterior:
    """The same once everything before the first step is settled; `start` are the weights [K, P] to begin with, if not random ones."""
    if cluster is not None:
        from equibayes.posterior.sample_cluster import sample_on_cluster

        return sample_on_cluster(
            prepared, data, cluster, start=start, output=output, resume=resume, overwrite=overwrite, display=display
        )
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    runner = make_runner(prepared, data, device, display or Silent(), start=start)

    def finish(state: RunState) -> Posterior:
        return gather(prepared, state, runner.schedule.sample_steps)

    return run_and_write(runner, finish, output, resume=resume, overwrite=overwrite)


def run_and_write(
    runner: ChainRunner,
    finish: Callable[[RunState], Posterior],
    output: str | Path | None,
    *,
    resume: bool,
    overwrite: bool,
) -> Posterior:
    """Run the chains to their end, make a posterior of the last state, and write it where an output is named."""
    if output is None:
        return finish(runner.run())
    path = Path(output)
    check_output(path, resume=resume, overwrite=overwrite)
    runner.folder = make_folder(run_folder(path))
    with lock(runner.folder):
        remove_leftovers(runner.folder)
        remove_leftovers(path.parent, escape(path.name))
        if not resume:
            checkpoint.remove_all(runner.folder)
            forget(runner.folder)
            write_text(runner.folder / "config.yaml", template(runner.config) + "\n")
        posterior = finish(runner.run(resume=resume))
        posterior.save(path, half_precision=runner.config.output.half_precision)
    return posterior


def check_output(path: Path, *, resume: bool, overwrite: bool, cluster: bool = False) -> None:
    """Never overwrite silently: neither a posterior nor an unfinished run."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file with -o")
    folder = run_folder(path)
    on_cluster = began_on_cluster(folder)
    checkpoints = on_cluster or (bool(checkpoint.newest_first(folder)) if folder.is_dir() else False)
    if resume:
        if not checkpoints:
            raise InputError(f"{folder}: no checkpoint to resume from; start without --resume")
        if on_cluster != cluster:
            began, remedy = ("with", "add --cluster") if on_cluster else ("without", "leave --cluster out")
            raise InputError(f"{folder}: this run began {began} --cluster; to resume it {remedy}")
    elif path.exists() and not overwrite:
        raise InputError(f"{path}: exists already; choose another name with -o, or add --overwrite")
    elif checkpoints and not overwrite:
        raise InputError(f"{folder}: holds an earlier run; continue it with --resume, or begin anew with --overwrite")


def make_runner(
    prepared: Prepared,
    data: Dataset,
    device: torch.device,
    display: Display,
    identities: Sequence[int] | None = None,
    make_potential: Callable[[Prepared, ResidentData], Potential] | None = None,
    start: torch.Tensor | None = None,
    kind: type[ChainRunner] = ChainRunner,
) -> ChainRunner:
    """The chains of a run, on their device.

    identities      their numbers, 0 … K−1 unless given
    make_potential  what they descend, if not the negative log posterior
    start           weights [K, P] of all chains to begin with; they change nothing in what is sampled, only where the chains begin
    kind            the class of the runner
    """
    config, center = prepared.config, prepared.config.prior.center
    about = describe_run(prepared, data, start)
    prior = make_prior(prepared, device)
    if start is not None:
        start = _checked_start(start, prepared)
        start = start if identities is None else start[list(identities)]
    if center is not None and isinstance(prior, CentredNormal) and start is None:
        key = NoiseKey(config.seed, range(config.chains) if identities is None else identities)
        start = start_near_center(prior, key)
    train = prepared.resident(prepared.train, device)
    return kind(
        make_potential(prepared, train) if make_potential else Potential(prepared.model, train, prior),
        config,
        validation=prepared.resident(prepared.validation, device) if len(prepared.validation) else None,
        about=about,
        display=display,
        identities=identities,
        start=start,
    )


def describe_run(prepared: Prepared, data: Dataset, start: torch.Tensor | None = None) -> dict[str, Any]:
    """By which a checkpoint's run is recognised: settings, data, and files and weights that it begins with."""
    center = prepared.config.prior.center
    about = {"config": prepared.config.to_dict(), "the data": data.fingerprint()}
    if start is not None:
        about["the start"] = hashlib.sha256(_checked_start(start, prepared).numpy().tobytes()).hexdigest()
    if center is not None:
        center_weights(center, prepared)  # which says what is wrong with it
        about["the file of prior.center"] = hashlib.sha256(Path(center).read_bytes()).hexdigest()
    return about


def start_near_center(prior: CentredNormal, key: NoiseKey) -> torch.Tensor:
    """Weights [K, P] near the centre of the prior, each chain's own.  Random weights would be many widths away from a narrow prior, and
    a draw from a wide one would forget what the centre knows; so a tenth of the width."""
    noise = standard_normal(key, 0, len(prior.center), stream=STREAM_START, dtype=prior.center.dtype)
    return prior.center + START_SHARE * prior.width * noise.to(prior.center.device)


def _checked_start(start: torch.Tensor, prepared: Prepared) -> torch.Tensor:
    """On the CPU, in the network's precision; one row a chain."""
    shape, size = tuple(start.shape), prepared.model.layout.size
    if shape != (prepared.config.chains, size):
        raise InputError(
            f"a start of shape {shape} does not fit {prepared.config.chains} chains with {size} weights each; use the same network"
        )
    return start.detach().cpu().to(getattr(torch, prepared.network.model_dtype)).contiguous()


def gather(prepared: Prepared, state: RunState, steps: list[int]) -> Posterior:
    """Samples of all chains, in the order of steps and in turn over chains, cut to the number that was asked for."""
    rows = [
        (sample[chain], chain, step)
        for sample, kept, step in zip(state.samples, state.kept, steps)
        for chain in range(len(sample))
        if bool(kept[chain]) and not bool(state.failed[chain])
    ]
    # the latest are the furthest from the start; with equal numbers from every chain
    rows = rows[-prepared.config.samples :]
    return Posterior(
        samples=torch.stack([row[0] for row in rows]),
        chain=torch.tensor([row[1] for row in rows]),
        step=torch.tensor([row[2] for row in rows]),
        network=prepared.network,
        reference=prepared.reference,
        config=prepared.config.to_dict(),
        data=describe_data(prepared.train, prepared.validation),
        history=state.history,
        verdict=judge(state, prepared.config),
    )


def describe_data(train: Dataset, validation: Dataset) -> dict[str, Any]:
    """What the posterior was conditioned on, so that it can be recognised."""
    held = [structure.source for structure in validation]
    return {
        "name": train.name,
        "frames": len(train),
        "atoms": int(train.n_atoms.sum()),
        "fingerprint": train.fingerprint(),
        "frame_marks": [frame_mark(structure) for structure in train],
        "validation_frames": len(validation),
        "validation_fingerprint": validation.fingerprint(),
        "validation_sources": held,
    }


def frame_mark(structure: Structure) -> str:
    """By which a training frame is recognised later: the beginning of its geometry's digest."""
    return structure.geometry_digest().hex()[:8]


def run_folder(output: str | Path) -> Path:
    """Where checkpoints and metrics of a posterior lie: `ethanol.posterior` -> `ethanol.run/`."""
    path = Path(output)
    return path.with_name((path.stem if path.suffix == ".posterior" else path.name) + ".run")
