"""`equibayes sample DATA -o OUT.posterior`: from a data file to a posterior."""

import argparse

from equibayes.cli.cluster import add_cluster_options, chosen_cluster
from equibayes.cli.device import add_device_options, chosen_device
from equibayes.cli.parser import add_reading_options, reading_options
from equibayes.cli.settings import add_settings_options, effective_config
from equibayes.data import Dataset, read
from equibayes.plural import counted
from equibayes.posterior.file import Posterior
from equibayes.posterior.sample import sample
from equibayes.run import Run
from equibayes.run.interrupt import Interrupted
from equibayes.run.progress import choose_display
from equibayes.run.settings import SampleConfig

HELP = "sample a posterior from a data file"
DESCRIPTION = "Sample networks from the Bayesian posterior, given energies and forces."
EPILOG = """\
examples:
  equibayes sample bundled:ethanol@train -o ethanol.posterior            a few minutes on two CPU cores
  equibayes sample train.xyz -o out.posterior --preset standard --device cuda
  equibayes sample train.xyz settings.yaml -o out.posterior burn_in.steps=50000 network.l_max=2
  equibayes sample train.xyz -o out.posterior --cluster auto --chains 64 every device of the Ray cluster that this machine is in
  equibayes sample train.xyz -o out.posterior --resume                   continue after a kill, bit for bit

`equibayes template sample` prints every setting with its meaning, as YAML to edit.
Beside OUT.posterior a folder OUT.run holds the effective settings (config.yaml), metrics.jsonl and checkpoints.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="file, file@split or bundled:NAME (see equibayes --help)")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.posterior", help="the posterior file to write")
    add_settings_options(parser)
    add_device_options(parser)
    add_cluster_options(parser)
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing OUT.posterior")
    add_reading_options(parser)


def run(arguments: argparse.Namespace) -> int:
    config = effective_config(arguments)
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
    data = read(arguments.data, **reading_options(arguments))
    print(data.summary(), flush=True)
    announce(data, config)
    try:
        posterior = sample(data, config, run=where)
    except Interrupted as stop:
        print(f"stopped at step {stop.step}; continue with the same command and --resume", flush=True)
        return 128 + stop.signal
    _conclude(posterior, arguments.output)
    return 0


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
