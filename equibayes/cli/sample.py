"""`equibayes sample DATA -o OUT.posterior`: from a data file to a posterior."""

import argparse
from pathlib import Path

from equibayes.cli.cluster import add_cluster_options, chosen_cluster
from equibayes.cli.device import add_device_options, chosen_device
from equibayes.cli.parser import add_reading_options
from equibayes.cli.settings import SAMPLING, add_data_and_settings, effective_config, given, sorted_words
from equibayes.data import Dataset
from equibayes.errors import InputError
from equibayes.plural import counted
from equibayes.posterior.file import Posterior
from equibayes.posterior.sample import sample
from equibayes.run import Run
from equibayes.run.frames import frames_of
from equibayes.run.interrupt import Interrupted
from equibayes.run.origin import CONFIG, stored, stored_config
from equibayes.run.progress import choose_display
from equibayes.run.settings import READING, SampleConfig
from equibayes.run.store import run_folder
from equibayes.sampling.minibatch import steps_per_epoch

HELP = "sample a posterior from a data file"
DESCRIPTION = "Sample networks from the Bayesian posterior, given energies and forces."
EPILOG = """\
examples:
  equibayes sample bundled:ethanol@train -o ethanol.posterior            a few minutes on two CPU cores
  equibayes sample train.xyz -o out.posterior --preset standard --device cuda
  equibayes sample train.xyz settings.yaml -o out.posterior burn_in.steps=50000 network.l_max=2
  equibayes sample first.xyz 'more/*.npz' -o out.posterior --validation validation.xyz
  equibayes sample train.xyz -o out.posterior --cluster auto --chains 64 every device of the Ray cluster that this machine is in
  equibayes sample --resume -o out.posterior                             continue after a kill, bit for bit

`equibayes template sample` prints every setting with its meaning, as YAML to edit.
Beside OUT.posterior a folder OUT.run holds the effective settings (config.yaml), metrics.jsonl and checkpoints.
--resume takes DATA and settings from there unless they are named; OUT.run may be given in place of -o.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_data_and_settings(parser, "frames to learn from (not needed with --resume)", required=False)
    parser.add_argument("-o", "--output", metavar="OUT.posterior", help="the posterior file to write")
    add_device_options(parser)
    add_cluster_options(parser)
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing OUT.posterior")
    add_reading_options(parser)


def run(arguments: argparse.Namespace) -> int:
    names, settings = _words(arguments)
    if Path(arguments.output).is_dir():
        raise InputError(f"{arguments.output}: is a folder; name a file with -o")
    folder = run_folder(arguments.output)
    kept = _from_folder(arguments, names, settings, folder)
    config = stored_config(folder) if kept else effective_config(arguments, settings)
    cluster = chosen_cluster(arguments)
    where = Run(
        arguments.output,
        resume=arguments.resume,
        overwrite=arguments.overwrite,
        device=chosen_device(arguments) if cluster is None else None,
        display=choose_display(),
        cluster=cluster,
    )
    where.check()
    data, validation, config = _frames(arguments, names, config, folder)
    print(data.summary(), flush=True)
    announce(data, validation, config)
    try:
        posterior = sample(data, config, validation=validation, run=where)
    except Interrupted as stop:
        again = f"equibayes sample --resume -o {arguments.output}"
        print(f"stopped at step {stop.step}; continue with the same command and --resume, or: {again}", flush=True)
        return 128 + stop.signal
    _conclude(posterior, arguments.output)
    return 0


def _words(arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    """DATA and settings; the folder of a run to continue gives -o.  An `InputError` where one is missing."""
    names, settings = sorted_words(arguments)
    if arguments.resume and len(names) == 1 and Path(names[0]).is_dir():
        folder = Path(names.pop())
        origin = stored(folder)
        if origin is None:
            raise InputError(f"{folder}: is not the folder of a run that can be continued from it; name DATA and -o")
        arguments.output = arguments.output or str(folder.with_name(origin.output))
    missing = [name for name, value in (("DATA", names), ("-o", arguments.output)) if not value]
    if missing and not (arguments.resume and arguments.output is not None):
        raise InputError(f"the following arguments are required: {', '.join(missing)}; see equibayes sample --help")
    return names, settings


def _from_folder(arguments: argparse.Namespace, names: list[str], settings: list[str], folder: Path) -> bool:
    """Whether the settings are those of the run that is continued: none are given, and the run has kept them."""
    given_here = settings or given(arguments, (*SAMPLING, *READING, "preset", "network", "center", "validation"))
    if not arguments.resume or not (folder / CONFIG).is_file():
        return False
    if given_here and not names:
        raise InputError(f"--resume without DATA takes all settings from {folder}; leave other settings out")
    return not given_here


def _frames(
    arguments: argparse.Namespace, names: list[str], config: SampleConfig, folder: Path
) -> tuple[Dataset, Dataset | None, SampleConfig]:
    """Frames to learn from and to validate on, those that are not named from the run that is continued."""
    origin = stored(folder) if arguments.resume else None
    if not names and origin is None:
        raise InputError(f"{folder}: does not say what its data were; name DATA and the settings it began with")
    data = names or origin.read_data(folder, config)  # type: ignore[union-attr]
    validation = arguments.validation
    if validation is None and origin is not None:
        validation = origin.read_validation(folder, config)
    return frames_of(data, validation, config, **config.data.reading())


def announce(data: Dataset, validation: Dataset | None, config: SampleConfig) -> None:
    size = len(data) - config.data.validation
    apart = f"{config.data.validation} held back"
    if validation is not None:
        apart = f"{len(validation)} of {validation.name} to validate on"
    if size < 1:
        return
    schedule = config.schedule(size)
    print(
        f"{counted(config.chains, 'chain')}, {counted(schedule.total_steps, 'step')} "
        f"({schedule.burn_in_steps} burn-in), {counted(config.samples, 'sample')}; "
        f"{counted(size, 'frame')} to learn from, {apart}",
        flush=True,
    )
    epoch, burn_in = steps_per_epoch(size, config.burn_in.batch_size), config.burn_in
    allowed = burn_in.within(epoch)
    if allowed < burn_in.steps:
        passes = f"{allowed} steps are {burn_in.epochs} passes over the frames (burn_in.epochs)"
        print(f"burn-in shorter than burn_in.steps={burn_in.steps}: {passes}", flush=True)
    asked = allowed + schedule.cycles.count * config.cycles.length
    if schedule.total_steps > asked:
        print(f"{schedule.total_steps} steps instead of {asked}: phases are rounded up to whole epochs", flush=True)
    if schedule.burn_in_steps < epoch:
        share = 100 * schedule.burn_in_steps / epoch
        print(
            f"note: the burn-in is shorter than an epoch of {epoch} steps and sees {share:.0f} % of the frames; "
            "raise burn_in.steps to use all",
            flush=True,
        )


def _conclude(posterior: Posterior, output: str) -> None:
    for warning in posterior.verdict["warnings"]:
        print(f"note: {warning}")
    last = next((record for record in reversed(posterior.history) if "validation_force_mae_of_mean" in record), None)
    if last:
        error = 1000 * last["validation_force_mae_of_mean"]
        print(f"force error of the mean over chains on held-back frames: {error:.1f} meV/Å")
    print(f"{counted(len(posterior), 'sample')} written to {output}")
