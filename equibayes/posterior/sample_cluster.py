"""From a data set to a posterior on a Ray cluster: what `equibayes sample --cluster` does."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from glob import escape
from pathlib import Path

import torch

from equibayes.config import template
from equibayes.data.dataset import Dataset
from equibayes.data.resident import ResidentData
from equibayes.errors import InputError
from equibayes.files import lock, make_folder, remove_leftovers, write_text
from equibayes.posterior.file import Posterior
from equibayes.posterior.sample import check_output, describe_run, gather, make_runner, run_folder
from equibayes.run import checkpoint
from equibayes.run.cluster.connect import ClusterOptions, connected
from equibayes.run.cluster.driver import ClusterRun, forget
from equibayes.run.cluster.pool import NOT_POOLED, Pool
from equibayes.run.cluster.shards import Shard, ShardedPotential
from equibayes.run.cluster.worker import ReportingRunner
from equibayes.run.prepare import Prepared, make_prior
from equibayes.run.progress import Display, Silent
from equibayes.run.records import round_significant

SO_FAR = "so-far.posterior"
"""In the run's folder: the posterior of all samples that are there, written anew whenever every chain has one more."""


class Maker:
    """Makes the runner of some chains; travels to the workers."""

    def __init__(self, prepared: Prepared, data: Dataset, start: torch.Tensor | None) -> None:
        self.prepared, self.data, self.start = prepared, data, start

    def __call__(self, identities: Sequence[int], device_name: str, shard: Shard) -> ReportingRunner:
        prepared, device = self.prepared, torch.device(device_name)
        sharded = None
        if shard.of > 1:
            prepared = replace(prepared, train=prepared.train.subset(shard.frames(len(prepared.train))))

            def sharded(ready: Prepared, own: ResidentData) -> ShardedPotential:
                return ShardedPotential(ready.model, own, make_prior(ready, device), shard, len(self.prepared.train))

        runner = make_runner(
            prepared, self.data, device, Silent(), identities, sharded, self.start, kind=ReportingRunner
        )
        assert isinstance(runner, ReportingRunner)
        if shard.of > 1:
            runner.evaluate = runner.potential  # a sum over processes is no part of a CUDA graph
        if shard.rank:
            runner.validation = None  # one of them looks
        return runner


def sample_on_cluster(
    prepared: Prepared,
    data: Dataset,
    options: ClusterOptions,
    *,
    start: torch.Tensor | None = None,
    output: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    display: Display | None = None,
) -> Posterior:
    """The same as `sample_prepared`, with chains spread over the devices of a cluster."""
    if options.shards > len(prepared.train):
        raise InputError(f"--shards {options.shards}: more than the {len(prepared.train)} frames to learn from")
    if output is None:
        with tempfile.TemporaryDirectory(prefix="equibayes-") as folder:
            return _run(prepared, data, options, start, Path(folder), False, display or Silent())
    path = Path(output)
    check_output(path, resume=resume, overwrite=overwrite, cluster=True)
    folder_of_run = make_folder(run_folder(path))
    with lock(folder_of_run):
        remove_leftovers(folder_of_run)
        remove_leftovers(path.parent, escape(path.name))
        if not resume:
            checkpoint.remove_all(folder_of_run)
            forget(folder_of_run)
            write_text(folder_of_run / "config.yaml", template(prepared.config) + "\n")
        posterior = _run(prepared, data, options, start, folder_of_run, resume, display or Silent())
        posterior.save(path, half_precision=prepared.config.output.half_precision)
        (folder_of_run / SO_FAR).unlink(missing_ok=True)
    return posterior


def _run(
    prepared: Prepared,
    data: Dataset,
    options: ClusterOptions,
    start: torch.Tensor | None,
    folder: Path,
    resume: bool,
    display: Display,
) -> Posterior:
    config = prepared.config
    schedule = config.schedule(len(prepared.train))
    about = describe_run(prepared, data, start)

    def so_far(pool: Pool) -> None:
        gather(prepared, pool.state(), schedule.sample_steps).save(folder / SO_FAR)

    with connected(options.address) as ray:
        run = ClusterRun(
            ray,
            Maker(prepared, data, start),
            chains=config.chains,
            total_steps=schedule.total_steps,
            about=about,
            options=options,
            folder=folder,
            display=display,
            tensorboard=config.output.tensorboard,
            on_sample=so_far,
        )
        pool = run.run(resume=resume)
    return conclude(prepared, pool, schedule.sample_steps)


def conclude(prepared: Prepared, pool: Pool, steps: list[int]) -> Posterior:
    """The posterior of all chains; what is said of the mean over chains is worked out here, where all of them are."""
    state = pool.state()
    if len(prepared.validation) and state.history and "validation_force_mae" in state.history[-1]:
        state.history[-1][NOT_POOLED] = mean_force_error(prepared, state.samples[-1][~state.failed])
    posterior = gather(prepared, state, steps)
    lost = [group for group in pool.groups if group.lost is not None]
    if not lost:
        return posterior
    gone = {chain for group in lost for chain in group.identities}
    diverged = [chain for chain in posterior.verdict["failed_chains"] if chain not in gone]
    warnings = [word for word in posterior.verdict["warnings"] if diverged or "gave no samples" not in word]
    warnings += [f"{group.name} gave no samples: {group.lost}" for group in lost]
    return replace(posterior, verdict={**posterior.verdict, "warnings": warnings})


@torch.no_grad()
def mean_force_error(prepared: Prepared, position: torch.Tensor, at_once: int = 8) -> float | None:
    """Mean absolute error of the mean over chains [K, P] on held-back frames, eV/Å."""
    data = prepared.resident(prepared.validation, "cpu")
    graph, labels = data.batch(torch.arange(len(data))[None])
    forces = sum(prepared.model(part, graph).forces.sum(0) for part in position.split(at_once)) / len(position)
    real = graph.real[0].nonzero().flatten()
    return round_significant(float((forces - labels.forces[0])[real].abs().mean()))
