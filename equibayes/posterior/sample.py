"""From a data set to a posterior in one call: what `equibayes sample` does."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from equibayes.data.dataset import Dataset
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.posterior.center import load_center
from equibayes.posterior.file import Posterior
from equibayes.run import Run
from equibayes.run.chains import Chains, describe_run, make_chains
from equibayes.run.cluster.connect import ClusterOptions, connected
from equibayes.run.cluster.driver import ClusterRun
from equibayes.run.cluster.maker import Maker
from equibayes.run.cluster.pool import NOT_POOLED, Pool
from equibayes.run.loop import run as run_chains
from equibayes.run.prepare import Prepared, prepare
from equibayes.run.settings import SampleConfig, sample_config
from equibayes.run.state import RunState
from equibayes.run.store import FolderStore
from equibayes.run.validation import mean_force_error
from equibayes.run.verdict import judge

SO_FAR = "so-far.posterior"
"""In the folder of a cluster run: the posterior of all samples so far, updated whenever every chain has one more."""


def sample(
    data: Dataset,
    config: SampleConfig | None = None,
    *,
    validation: Dataset | None = None,
    run: Run | None = None,
    **options: Any,
) -> Posterior:
    """Sample the posterior of a network given a data set.

    config      settings; default: the preset `quick`
    validation  frames that are held back already, in place of data.validation of `data` (which must then be 0)
    run         where the run is written and computed; default: no files, on a GPU if there is one
    options     fields of `Run`, such as output="my.posterior", in place of `run`
    """
    if run is not None and options:
        raise TypeError(f"{', '.join(options)}: part of `run`, which is given")
    config = config or sample_config()
    prepared = prepare(data, config, validation, load_center(config.prior.center))
    return sample_prepared(prepared, data, run or Run(**options))


def sample_prepared(prepared: Prepared, data: Dataset, run: Run, *, start: torch.Tensor | None = None) -> Posterior:
    """The same once everything before the first step is settled; start: weights [K, P] to begin with, if not random."""
    if run.cluster is not None:
        return _on_cluster(prepared, data, run, run.cluster, start)
    return sample_chains(make_chains(prepared, data, run.on, start=start), run, lambda state: gather(prepared, state))


def sample_chains(chains: Chains, run: Run, finish: Callable[[RunState], Posterior]) -> Posterior:
    """Run the chains to their end, make a posterior of the last state, and write it where an output is named."""
    with run.opened(chains.config) as folder:
        output = chains.config.output
        store = FolderStore(folder, resume=run.resume, tensorboard=output.tensorboard) if folder else None
        posterior = finish(run_chains(chains, store, run.screen))
        if run.output is not None:
            posterior.save(run.output, half_precision=output.half_precision)
    return posterior


def _on_cluster(
    prepared: Prepared, data: Dataset, run: Run, options: ClusterOptions, start: torch.Tensor | None
) -> Posterior:
    """Chains on the devices of a cluster."""
    config = prepared.config
    if options.shards > len(prepared.train):
        raise InputError(f"--shards {options.shards}: more than the {len(prepared.train)} frames to learn from")
    with run.opened(config) as kept, tempfile.TemporaryDirectory(prefix="equibayes-") as temporary:
        folder = kept or Path(temporary)

        def so_far(pool: Pool) -> None:
            gather(prepared, pool.state()).save(folder / SO_FAR)

        with connected(options.address) as ray:
            pool = ClusterRun(
                ray,
                Maker(prepared, data, start),
                chains=config.chains,
                total_steps=config.schedule(len(prepared.train)).total_steps,
                about=describe_run(prepared, data, start),
                options=options,
                folder=folder,
                display=run.screen,
                tensorboard=config.output.tensorboard,
                on_sample=so_far,
            ).run(resume=run.resume)
        state = pool.state()
        if len(prepared.validation) and state.history and "validation_force_mae" in state.history[-1]:
            # no worker has all chains, so the error of their mean is computed here
            good = state.samples[-1][state.kept[-1] & ~state.failed]
            frames = prepared.resident(prepared.validation, "cpu")
            state.history[-1][NOT_POOLED] = mean_force_error(prepared.model, good, frames)
        posterior = gather(prepared, state)
        if run.output is not None:
            posterior.save(run.output, half_precision=config.output.half_precision)
        (folder / SO_FAR).unlink(missing_ok=True)
    return posterior


def gather(prepared: Prepared, state: RunState) -> Posterior:
    """Samples of all chains, in the order of steps and in turn over chains, cut to the number that was asked for."""
    steps = prepared.config.schedule(len(prepared.train)).sample_steps
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
        engine=state.engine,
    )


def describe_data(train: Dataset, validation: Dataset) -> dict[str, Any]:
    """Describes the training data, so that its frames can be identified later."""
    return {
        "name": train.name,
        "frames": len(train),
        "atoms": int(train.n_atoms.sum()),
        "fingerprint": train.fingerprint(),
        "frame_marks": [frame_mark(structure) for structure in train],
        "validation_frames": len(validation),
        "validation_fingerprint": validation.fingerprint(),
        "validation_sources": [structure.source for structure in validation],
    }


def frame_mark(structure: Structure) -> str:
    """Identifies a training frame: the beginning of its geometry's digest."""
    return structure.geometry_digest().hex()[:8]
