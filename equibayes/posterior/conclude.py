"""The end of a run: exact inference around each chain, where the settings ask for it."""

from pathlib import Path

from equibayes.data.dataset import Dataset
from equibayes.network.scales import mean_neighbors
from equibayes.posterior.file import Posterior
from equibayes.posterior.tangent import refine
from equibayes.posterior.tangent_choice import warnings_of
from equibayes.posterior.tangent_plan import LABELS, Plan
from equibayes.posterior.tangent_store import Store
from equibayes.run import Run
from equibayes.run.progress import watched
from equibayes.run.settings import SampleConfig

SHARE = 1.0
"""`auto`: evaluations of a frame that rows may cost, as a share of those of the sampler (measured: results/tangent)."""
PAIRS, FEWEST_LABELS = 1_000_000, 400
"""Around a network that was trained elsewhere: labels times neighbours in a frame, some minutes for four networks, and
labels that are used whatever they cost."""
FOLDER = "refine"
"""In the folder of a run: networks that are done."""


def concluded(
    posterior: Posterior, config: SampleConfig, train: Dataset, held: Dataset, run: Run, folder: Path | None
) -> Posterior:
    """The posterior as it is, or linearised, with as many samples as were asked for; folder: of the run."""
    if not wanted(posterior, config, train, run):
        return posterior
    chains = len(set(posterior.chain.tolist()))
    run.screen.say("exact inference around each chain")
    place = None if folder is None else folder / FOLDER
    refined = refine(
        posterior,
        train,
        held,
        draws=max(1, config.samples // chains),
        seed=config.seed,
        labels=affordable(posterior, config, train),
        folder=place,
        say=run.screen.say,
        watch=watched if run.display is not None else lambda items, what: items,
    )
    Store(place, "").clear()
    warnings = warnings_of(refined.verdict["tangent"])
    if warnings and config.tangent == "auto":
        run.screen.say(f"{warnings[0]}; it is what is kept")
        return posterior
    refined.verdict["warnings"] = [*refined.verdict.get("warnings", []), *warnings]
    return refined


def wanted(posterior: Posterior, config: SampleConfig, train: Dataset, run: Run) -> bool:
    """Whether it is asked for; `auto`: by the engine that runs on this CPU, and where it costs little time.

    A row costs as much as the gradient of one frame.
    """
    if config.tangent != "auto":
        return config.tangent == "on"
    if run.on.type != "cpu" or not len(train):
        return False
    schedule, plan = config.schedule(len(train)), Plan.of(posterior, train)
    gradients = schedule.burn_in_steps * config.burn_in.batch_size
    return plan.share == 1 and plan.labels <= SHARE * gradients


def affordable(posterior: Posterior, config: SampleConfig, train: Dataset) -> int | None:
    """Labels around a network that was trained elsewhere, which is larger than others; None: as many as are usual."""
    if config.prior.center is None:
        return None
    neighbors = mean_neighbors(train.structures, posterior.network.r_max) * float(train.n_atoms.mean())
    return min(LABELS, max(FEWEST_LABELS, int(PAIRS / neighbors)))
