"""The argument parser, and the options shared by all verbs with a DATA argument."""

import argparse
from typing import Any, NoReturn

from equibayes.errors import InputError
from equibayes.run.settings import READING
from equibayes.units import ENERGY_UNITS, LENGTH_UNITS


class Parser(argparse.ArgumentParser):
    """A mistake on the command line is an `InputError`: one line, status 2, as for any other bad input."""

    def __init__(self, prog: str | None = None, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        settings.setdefault("allow_abbrev", False)  # so that a new option never changes what an old script means
        super().__init__(prog, **settings)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{' '.join(message.split())}; see {self.prog} --help")


def add_number(group: Any, name: str, default: int | float, metavar: str, text: str) -> None:
    """A number whose type is that of its default, which ends the help text; to a parser or a group of options."""
    group.add_argument(name, type=type(default), default=default, metavar=metavar, help=f"{text} (default {default:g})")


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    """Keys of the labels and units; the names are those of `equibayes.data.read`."""
    labels = parser.add_argument_group("labels", "searched: the key named here, else REF_energy …, else ASE's results")
    labels.add_argument("--energy-key", metavar="KEY", help="key of the energies, e.g. dft_energy")
    labels.add_argument("--forces-key", metavar="KEY", help="key of the forces, e.g. dft_forces")
    labels.add_argument("--stress-key", metavar="KEY", help="key of the stress, or of the virial if its name says so")
    units = parser.add_argument_group("units of the file", "eV and Ang unless the format says otherwise")
    units.add_argument("--energy-unit", metavar="UNIT", help=", ".join(ENERGY_UNITS))
    units.add_argument("--length-unit", metavar="UNIT", help=", ".join(LENGTH_UNITS))
    units.add_argument("--force-unit", metavar="UNIT", help="e.g. Hartree/Bohr; follows from the other two if left out")
    units.add_argument("--stress-unit", metavar="UNIT", help="e.g. GPa, kbar; likewise (positive under tension)")


def reading_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of `add_reading_options` as keyword arguments for `equibayes.data.read`."""
    return {name: getattr(arguments, name) for name in READING}


def add_chemiscope_option(parser: argparse.ArgumentParser) -> None:
    text = "also write the frames with their σ for chemiscope, .json or .json.gz"
    parser.add_argument("--chemiscope", metavar="FILE", help=text)
