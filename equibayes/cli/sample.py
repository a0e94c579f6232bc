"""`equibayes sample DATA -o OUT.posterior`: from a data file to a posterior."""

import argparse
from pathlib import Path

from equibayes.cli.cluster import add_cluster_options, chosen_cluster
from equibayes.cli.device import add_device_options, chosen_device
from equibayes.cli.parser import add_reading_options
from equibayes.cli.settings import SAMPLING, add_settings_options, effective_config, given
from equibayes.data import Dataset, read
from equibayes.errors import InputError
from equibayes.plural import counted
from equibayes.posterior.file import Posterior
from equibayes.posterior.sample import sample
from equibayes.run import Run
from equibayes.run.interrupt import Interrupted
from equibayes.run.origin import CONFIG, stored, stored_config
from equibayes.run.progress import choose_display
from equibayes.run.settings import READING, SampleConfig
from equibayes.run.store import run_folder

HELP = "sample a posterior from a data file"
DESCRIPTION = "Sample networks from the Bayesian posterior, given energies and forces."
EPILOG = """\
examples:
  equibayes sample bundled:ethanol@train -o ethanol.posterior            a few minutes on two CPU cores
  equibayes sample train.xyz -o out.posterior --preset standard --device cuda
  equibayes sample train.xyz settings.yaml -o out.posterior burn_in.steps=50000 network.l_max=2
  equibayes sample train.xyz -o out.posterior --cluster auto --chains 64 every device of the Ray cluster that this machine is in
  equibayes sample --resume -o out.posterior                             continue after a kill, bit for bit

`equibayes template sample` prints every setting with its meaning, as YAML to edit.
Beside OUT.posterior a folder OUT.run holds the effective settings (config.yaml), metrics.jsonl and checkpoints.
--resume takes DATA and settings from there unless they are named; OUT.run may be given in place of -o.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    words = "file, file@split or bundled:NAME (see equibayes --help); not needed with --resume"
    parser.add_argument("data", nargs="?", metavar="DATA", help=words)
    parser.add_argument("-o", "--output", metavar="OUT.posterior", help="the posterior file to write")
    add_settings_options(parser)
    add_device_options(parser)
    add_cluster_options(parser)
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing OUT.posterior")
    add_reading_options(parser)


def run(arguments: argparse.Namespace) -> int:
    _sort_words(arguments)
    if Path(arguments.output).is_dir():
        raise InputError(f"{arguments.output}: is a folder; name a file with -o")
    folder = run_folder(arguments.output)
    config = stored_config(folder) if _from_folder(arguments, folder) else effective_config(arguments)
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
    data, validation = _data(arguments, config, folder)
    print(data.summary(), flush=True)
    announce(data, config)
    try:
        posterior = sample(data, config, validation=validation, run=where)
    except Interrupted as stop:
        again = f"equibayes sample --resume -o {arguments.output}"
        print(f"stopped at step {stop.step}; continue with the same command and --resume, or: {again}", flush=True)
        return 128 + stop.signal
    _conclude(posterior, arguments.output)
    return 0


def _sort_words(arguments: argparse.Namespace) -> None:
    """Which of the words are DATA, settings, and the folder of a run to continue; an `InputError` if one is missing."""
    words = [word for word in (arguments.data, *arguments.settings) if word is not None]
    arguments.data = None
    if words and arguments.resume and Path(words[0]).is_dir():
        folder = Path(words.pop(0))
        origin = stored(folder)
        if origin is None:
            raise InputError(f"{folder}: is not the folder of a run that can be continued from it; name DATA and -o")
        arguments.output = arguments.output or str(folder.with_name(origin.output))
    if words and not (arguments.resume and _is_setting(words[0])):
        arguments.data = words.pop(0)
    arguments.settings = words
    missing = [name for name, value in (("DATA", arguments.data), ("-o", arguments.output)) if value is None]
    if arguments.resume and arguments.output is not None:
        missing = []
    if missing:
        raise InputError(f"the following arguments are required: {', '.join(missing)}; see equibayes sample --help")


def _is_setting(word: str) -> bool:
    return (not Path(word).exists() and "=" in word) or word.lower().endswith((".yaml", ".yml"))


def _from_folder(arguments: argparse.Namespace, folder: Path) -> bool:
    """Whether the settings are those of the run that is continued: none are given, and the run has kept them."""
    given_here = arguments.settings or given(arguments, (*SAMPLING, *READING, "preset", "network"))
    if not arguments.resume or not (folder / CONFIG).is_file():
        return False
    if given_here and arguments.data is None:
        raise InputError(f"--resume without DATA takes all settings from {folder}; leave other settings out")
    return not given_here


def _data(arguments: argparse.Namespace, config: SampleConfig, folder: Path) -> tuple[Dataset, Dataset | None]:
    """The data, and frames to validate on if the run that is continued had some apart."""
    origin = stored(folder) if arguments.resume else None
    if arguments.data is not None:
        data = read(arguments.data, **config.data.reading())
    elif origin is None:
        raise InputError(f"{folder}: does not say what its data were; name DATA and the settings it began with")
    else:
        data = origin.read_data(folder, config)
    return data, None if origin is None else origin.read_validation(folder, config)


def announce(data: Dataset, config: SampleConfig) -> None:
    size = len(data) - config.data.validation
    if size < 1:
        return
    schedule = config.schedule(size)
    print(
        f"{counted(config.chains, 'chain')}, {counted(schedule.total_steps, 'step')} "
        f"({schedule.burn_in_steps} burn-in), {counted(config.samples, 'sample')}; "
        f"{counted(size, 'frame')} to learn from, {config.data.validation} held back",
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
