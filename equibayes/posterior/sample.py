"""From a data set to a posterior in one call: what `equibayes sample` does."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from equibayes.bayes.prior import CentredNormal
from equibayes.data.dataset import Dataset
from equibayes.data.elements import atomic_number
from equibayes.data.narrow import narrow_range
from equibayes.data.several import Given
from equibayes.errors import InputError
from equibayes.plural import counted
from equibayes.posterior.center import load_center
from equibayes.posterior.conclude import concluded
from equibayes.posterior.file import Posterior
from equibayes.posterior.fit_novelty import with_novelty
from equibayes.posterior.marks import frame_mark
from equibayes.run import Run
from equibayes.run.chains import Chains, describe_run, make_chains
from equibayes.run.cluster.connect import ClusterOptions, connected
from equibayes.run.cluster.driver import ClusterRun
from equibayes.run.cluster.maker import Maker
from equibayes.run.cluster.pool import NOT_POOLED, Pool
from equibayes.run.frames import Validation, frames_of
from equibayes.run.loop import run as run_chains
from equibayes.run.origin import Origin
from equibayes.run.prepare import Prepared, make_prior, prepare
from equibayes.run.settings import SampleConfig, sample_config
from equibayes.run.state import RunState
from equibayes.run.store import FolderStore
from equibayes.run.validation import mean_force_error
from equibayes.run.verdict import judge

UNSEEN = 1 << 40
"""Added to the seed for weights that no data determine."""
SO_FAR = "so-far.posterior"
"""In the folder of a cluster run: the posterior of all samples so far, updated whenever every chain has one more."""


def sample(
    data: Given | Sequence[Given],
    config: SampleConfig | None = None,
    *,
    validation: Validation = None,
    run: Run | None = None,
    **options: Any,
) -> Posterior:
    """Sample the posterior of a network given a data set.

    data        a data set, a file such as "train.xyz@0:500", a pattern such as "frames/*.xyz", or a list of these
    config      settings; default: the preset `quick`
    validation  frames to validate on, in the same forms; or a fraction (0.1) or number (30) of the frames of `data`.
                Default: as data.validation of the settings says
    run         where the run is written and computed; default: no files, on a GPU if there is one
    options     fields of `Run`, such as output="my.posterior", in place of `run`
    """
    if run is not None and options:
        raise TypeError(f"{', '.join(options)}: part of `run`, which is given")
    frames, apart, config = frames_of(data, validation, config or sample_config())
    run = run or Run(**options)
    prepared = prepare(frames, config, apart, load_center(config.prior.center), run.on)
    for note in prepared.notes:
        run.screen.say(note)
    return sample_prepared(prepared, frames, run, origin=Origin.of(frames, apart))


def sample_prepared(
    prepared: Prepared, data: Dataset, run: Run, *, start: torch.Tensor | None = None, origin: Origin | None = None
) -> Posterior:
    """The same once everything before the first step is settled.

    start   weights [K, P] to begin with, if not random
    origin  where the data came from, to be kept in the folder of the run
    """
    if run.cluster is not None:
        return _on_cluster(prepared, data, run, run.cluster, start, origin)
    chains = make_chains(prepared, data, run.on, start=start)

    def finish(state: RunState, folder: Path | None) -> Posterior:
        posterior = finished(prepared, state, run.on)
        return concluded(posterior, prepared.config, prepared.train, prepared.validation, run, folder)

    return sample_chains(chains, run, finish, origin)


def sample_chains(
    chains: Chains, run: Run, finish: Callable[[RunState, Path | None], Posterior], origin: Origin | None = None
) -> Posterior:
    """Run the chains to their end, make a posterior of the last state, and write it where an output is named.

    finish  of the last state and the folder of the run
    """
    with run.opened(chains.config, origin) as folder:
        output = chains.config.output
        store = FolderStore(folder, resume=run.resume, output=output) if folder else None
        posterior = finish(run_chains(chains, store, run.screen), folder)
        if run.output is not None:
            posterior.save(run.output, half_precision=output.half_precision)
    return posterior


def _on_cluster(
    prepared: Prepared,
    data: Dataset,
    run: Run,
    options: ClusterOptions,
    start: torch.Tensor | None,
    origin: Origin | None,
) -> Posterior:
    """Chains on the devices of a cluster."""
    config = prepared.config
    if config.burn_in.patience is not None:
        raise InputError("burn_in.patience compares all chains, which --cluster keeps apart; leave one of the two out")
    if options.shards > len(prepared.train):
        raise InputError(
            f"--shards {options.shards}: more than the {counted(len(prepared.train), 'frame')} to learn from"
        )
    with run.opened(config, origin) as kept, tempfile.TemporaryDirectory(prefix="equibayes-") as temporary:
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
                output=config.output,
                on_sample=so_far,
            ).run(resume=run.resume)
        state = pool.state()
        if len(prepared.validation) and state.history and "validation_force_mae" in state.history[-1]:
            # no worker has all chains, so the error of their mean is computed here
            good = state.samples[-1][state.kept[-1] & ~state.failed]
            frames = prepared.resident(prepared.validation, "cpu")
            state.history[-1][NOT_POOLED] = mean_force_error(prepared.model, good, frames)
        posterior = finished(prepared, state, run.on)
        posterior = concluded(posterior, config, prepared.train, prepared.validation, run, folder)
        if run.output is not None:
            posterior.save(run.output, half_precision=config.output.half_precision)
        (folder / SO_FAR).unlink(missing_ok=True)
    return posterior


def finished(prepared: Prepared, state: RunState, device: torch.device | str) -> Posterior:
    """The posterior with its novelty."""
    return with_novelty(gather(prepared, state), prepared.train, prepared.validation, device=device)


def gather(prepared: Prepared, state: RunState) -> Posterior:
    """Samples of all chains, in the order of steps and in turn over chains, cut to the number that was asked for."""
    steps = prepared.config.schedule(len(prepared.train)).sample_steps
    rows = [
        (sample[chain], chain, step)
        for sample, kept, step in zip(state.samples, state.kept, steps)
        for chain in range(len(sample))
        if bool(kept[chain]) and not bool(state.failed[chain])
    ]
    shot = prepared.zero_shot
    verdict, narrow = judge(state, prepared.config), narrow_range(prepared.train)
    if narrow:
        verdict["warnings"].insert(0, narrow)
    # the latest are the furthest from the start; with equal numbers from every chain
    rows = rows[-prepared.config.samples :]
    chosen = torch.stack([row[0] for row in rows])
    return Posterior(
        samples=with_unseen_species(prepared, chosen, [row[1] for row in rows]),
        chain=torch.tensor([row[1] for row in rows]),
        step=torch.tensor([row[2] for row in rows]),
        network=prepared.network,
        reference=prepared.reference,
        config=prepared.config.to_dict(),
        data=describe_data(prepared.train, prepared.validation) | ({"zero_shot": shot} if shot else {}),
        history=state.history,
        verdict=verdict,
        engine=state.engine,
        baseline=prepared.baseline,
    )


def with_unseen_species(prepared: Prepared, samples: torch.Tensor, chains: Sequence[int]) -> torch.Tensor:
    """Draws from the prior in the rows of species that no training frame has, [k, P].

    The likelihood does not depend on these weights, so the prior is their posterior, which short chains that begin near
    its centre would not reach.
    """
    known = {int(z) for structure in prepared.train for z in structure.numbers}
    unseen = [i for i, name in enumerate(prepared.network.type_names) if atomic_number(name) not in known]
    if prepared.center is None or not unseen:
        return samples
    prior = make_prior(prepared, "cpu", chains)
    assert isinstance(prior, CentredNormal)
    noise = torch.randn(samples.shape, generator=torch.Generator().manual_seed(prepared.config.seed + UNSEEN))
    layout = prepared.model.layout
    views, drawn = (layout.views(each.clone()) for each in (samples, (prior.center + prior.width * noise).to(samples)))
    for parameter in layout.parameters:
        if parameter.per_type:
            views[parameter.name][:, unseen] = drawn[parameter.name][:, unseen]
    return layout.flatten(views)


def describe_data(train: Dataset, validation: Dataset) -> dict[str, Any]:
    """Describes the training data, so that its frames can be identified later."""
    return {
        "name": train.name,
        "frames": len(train),
        "atoms": int(train.n_atoms.sum()),
        "fingerprint": train.fingerprint(),
        "frame_marks": [frame_mark(structure) for structure in train],
        "notes": list(dict.fromkeys(note for part in (train, validation) if part.report for note in part.report.notes)),
        "validation_name": validation.name,
        "validation_frames": len(validation),
        "validation_fingerprint": validation.fingerprint(),
        "validation_sources": [structure.source for structure in validation],
    }
