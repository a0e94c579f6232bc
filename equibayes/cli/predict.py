"""`equibayes predict OUT.posterior DATA -o OUT.xyz`: energies, forces and stress with their uncertainties."""

import argparse
from collections.abc import Iterable, Iterator
from itertools import tee
from pathlib import Path

import numpy as np

from equibayes.adapters.chemiscope import convert
from equibayes.cli.device import add_device_options, chosen_device
from equibayes.cli.outputs import check_output
from equibayes.cli.parser import add_chemiscope_option, add_reading_options, reading_options
from equibayes.data.specs import parse_spec
from equibayes.data.stream import stream
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.files import check_target
from equibayes.network.pretrained import NAMES
from equibayes.plural import counted
from equibayes.posterior.extxyz import write_predictions
from equibayes.posterior.file import load
from equibayes.posterior.novelty import NO_NOVELTY, NOVELTY
from equibayes.posterior.predict import predict
from equibayes.posterior.prediction import Prediction
from equibayes.posterior.pretrained import as_posterior, load_pretrained
from equibayes.run.progress import watched

HELP = "energies, forces and stress with uncertainties, as extended xyz"
DESCRIPTION = (
    "Predict energies, forces and stress with their uncertainties.  Labels are not needed.  Extended xyz files of any "
    "length are read in constant memory."
)
EPILOG = """\
examples:
  equibayes predict ethanol.posterior bundled:ethanol@test -o predicted.xyz
  equibayes predict out.posterior trajectory.xyz.gz -o predicted.xyz --k 4 --interval 0.9
  equibayes predict --from 7net-0 frames.xyz -o zero_shot.xyz    a pretrained network as it is, without σ

OUT.xyz holds energy, forces (and stress of periodic structures) where ASE looks for them, and in eV and Å:
  energy_std, energy_epistemic, energy_aleatoric       in the comment line
  forces_std, forces_epistemic, forces_aleatoric       columns, three for every atom
  stress_std, stress_epistemic, stress_aleatoric       in the comment line, of periodic structures
  pressure_std                                         likewise, of the mean pressure
  atom_sigma                                           one column, to colour atoms by
  novelty                                              one column: how far the atom is from all that was learned, 1 is
                                                       the edge
Labels of the input are kept as REF_energy, REF_forces, REF_stress.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("posterior", nargs="?", metavar="OUT.posterior", help="posterior file (not with --from)")
    parser.add_argument("data", metavar="DATA", help="file, file@split or bundled:NAME (see equibayes --help)")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.xyz", help="extended xyz file to write")
    text = f"predict with a pretrained network, without σ: {', '.join(NAMES)} or a checkpoint"
    parser.add_argument("--from", dest="center", metavar="NAME|FILE", help=text)
    parser.add_argument("--k", type=int, metavar="k", help="use the first k samples (default: all)")
    parser.add_argument(
        "--members", action="store_true", help="also write the predictions of every sample (…_ensemble)"
    )
    interval = "also write half widths of intervals that contain the truth with this probability"
    parser.add_argument("--interval", type=float, metavar="p", help=interval)
    add_chemiscope_option(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace an existing OUT.xyz")
    add_device_options(parser)
    add_reading_options(parser)


def run(arguments: argparse.Namespace) -> int:
    target = Path(arguments.output)
    if not target.name.lower().endswith((".xyz", ".extxyz")):
        raise InputError(f"{target}: the name of the output must end in .xyz or .extxyz")
    if target.resolve() == parse_spec(arguments.data).path.resolve():
        raise InputError(f"{target}: is the input itself; choose another name with -o")
    check_target(target, overwrite=arguments.overwrite)
    check_output("chemiscope", arguments.chemiscope, ".json", ".gz")
    level = arguments.interval
    if level is not None and not 0 < level < 1:
        raise InputError(f"--interval {level:g}: a probability between 0 and 1 is needed, such as 0.9")
    device = chosen_device(arguments)
    if arguments.center is not None:
        return _zero_shot(arguments, target, device)
    if arguments.posterior is None:
        raise InputError("no posterior: name a file, or a pretrained network with --from")
    posterior = load(arguments.posterior)
    if arguments.k is not None:
        posterior = posterior.subset(arguments.k)
    frames = stream(arguments.data, **reading_options(arguments))
    ours, theirs = tee(watched(frames.structures, frames.name, frames.total))  # apart by one batch at most
    predictions = predict(posterior, ours, members=arguments.members, device=device)
    seen = _Seen()
    count = write_predictions(target, seen.watch(zip(theirs, predictions)), level=level)
    if arguments.chemiscope is not None:
        convert(target, arguments.chemiscope)
    if level is not None and posterior.calibration is None:
        remedy = "calibrate it with equibayes calibrate"
        print(f"note: this posterior is not calibrated: intervals use σ as it is ({remedy})")
    if seen.adrift:
        print(
            f"note: energies of {counted(seen.adrift, 'frame')} are defined only up to a constant, first: {seen.first_adrift}; "
            "the training data had no such composition (docs: your own data)"
        )
    if count < frames.total:
        print(
            f"note: left out {frames.total - count} of {counted(frames.total, 'frame')}: free atoms (config_type=IsolatedAtom)"
        )
    print(f"{counted(count, 'frame')} written to {target}\n{seen}")
    if posterior.novelty is None:
        print(f"note: {NO_NOVELTY}")
    return 0


def _zero_shot(arguments: argparse.Namespace, target: Path, device: str | None) -> int:
    """What a pretrained network predicts by itself."""
    given = [name for name in ("posterior", "k", "interval", "chemiscope") if getattr(arguments, name) is not None]
    if given or arguments.members:
        raise InputError(
            f"--from {arguments.center}: one set of weights has no σ; leave {(given or ['members'])[0]} out"
        )
    model = load_pretrained(arguments.center)
    print(f"{arguments.center}: {model.origin}" if model.origin else arguments.center)
    frames = stream(arguments.data, **reading_options(arguments))
    ours, theirs = tee(watched(frames.structures, frames.name, frames.total))
    count = write_predictions(target, zip(theirs, predict(as_posterior(model), ours, device=device)), sigma=False)
    print(f"{counted(count, 'frame')} written to {target}, without σ: sample with --from {arguments.center} for that")
    return 0


class _Seen:
    """The largest uncertainty and novelty so far, and where; energies that are defined only up to a constant."""

    def __init__(self) -> None:
        self.sum_of_squares, self.components, self.largest, self.where = 0.0, 0, -1.0, ""
        self.adrift, self.first_adrift = 0, ""
        self.frames, self.novel, self.novelty, self.novel_where = 0, 0, 0.0, ""

    def watch(self, predicted: Iterable[tuple[Structure, Prediction]]) -> Iterator[tuple[Structure, Prediction]]:
        for structure, prediction in predicted:
            sigma = prediction.forces_std
            self.sum_of_squares += float(np.square(sigma).sum())
            self.components += sigma.size
            largest = float(sigma.max())
            if not largest <= self.largest:  # also where it is not a number
                self.largest, self.where = largest, structure.source
            if prediction.novelty is not None:
                self._add(float(prediction.novelty.max()), structure)
            if not prediction.energy_known:
                self.adrift, self.first_adrift = self.adrift + 1, self.first_adrift or structure.source
            yield structure, prediction

    def _add(self, novelty: float, structure: Structure) -> None:
        self.frames, self.novel = self.frames + 1, self.novel + (novelty >= NOVELTY[0])
        if novelty > self.novelty:
            self.novelty, self.novel_where = novelty, structure.source

    def __str__(self) -> str:
        typical = 1000 * float(np.sqrt(self.sum_of_squares / self.components))
        largest = f"at most {1000 * self.largest:.1f} meV/Å in {self.where}"
        lines = [f"σ of force components {typical:.1f} meV/Å (RMS), {largest}"]
        if self.frames:
            share = f"{self.novel} of {counted(self.frames, 'frame')} beyond what was learned (novelty above {NOVELTY[0]:g})"
            lines.append(f"{share}; novelty at most {self.novelty:.2f} in {self.novel_where}")
        return "\n".join(lines)
