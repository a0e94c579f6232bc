"""`equibayes properties OUT.posterior STRUCTURE`: properties of a crystal with error bars."""

import argparse
import json
from pathlib import Path
from typing import Any

from equibayes.cli.device import add_device_options, chosen_device
from equibayes.cli.outputs import check_output
from equibayes.cli.parser import add_number
from equibayes.errors import InputError
from equibayes.files import write_text
from equibayes.posterior.file import load

HELP = "lattice, equation of state, elastic constants, phonons and vacancies of a crystal, with σ"
DESCRIPTION = (
    "Properties of a bulk crystal with error bars.  Every sample of the posterior relaxes the crystal and computes each "
    "property by itself; the mean and the standard deviation over the samples are reported."
)
EPILOG = """\
examples:
  equibayes properties cu.posterior POSCAR
  equibayes properties si.posterior si.cif --only lattice,eos,elastic --json si.json --plot si.svg
  equibayes properties si.posterior si.cif --report si.html
  equibayes properties mgo.posterior mgo.cif --only vacancy --mu O=-4.93 --mu Mg=-1.6 --supercell-length 12

Properties (default: all):
  lattice   parameters of the conventional cell, volume and energy per atom; the symmetry is kept
  eos       energy over volume, Birch-Murnaghan fit: bulk modulus and its derivative
  elastic   elastic constants with relaxed atoms, moduli of a polycrystal (Voigt-Reuss-Hill)
  phonons   bands along the path of the Bravais lattice, by phonopy
  vacancy   formation energy for each set of equivalent atoms, relaxed at constant volume

STRUCTURE is any file that ASE reads; it is reduced to its primitive cell.  Samples that do not relax are left out and
named.  σ is the spread over the samples.  It does not contain errors that all samples share, such as those of the
reference method or of the size of the supercell.  Needs phonopy: pip install 'equibayes[properties]'.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("posterior", metavar="OUT.posterior", help="posterior file")
    parser.add_argument("structure", metavar="STRUCTURE", help="POSCAR, CIF, extended xyz …; file@5 is frame 5")
    parser.add_argument("--only", metavar="lattice,eos,elastic,phonons,vacancy", help="some of the properties")
    parser.add_argument("--json", metavar="FILE.json", help="write every number, with the values of all samples")
    parser.add_argument("--plot", metavar="FILE.svg", help="write a figure (.svg, .pdf or .png)")
    parser.add_argument("--report", metavar="FILE.html", help="write one page with tables and figures; works offline")
    length = "between opposite faces of the supercells for phonons and vacancies"
    add_number(parser, "--supercell-length", 10.0, "Å", length)
    parser.add_argument(
        "--mu",
        action="append",
        default=[],
        metavar="X=eV",
        help="chemical potential, for vacancies in compounds; can be repeated",
    )
    add_number(parser, "--symprec", 0.01, "Å", "tolerance of the symmetry that is looked for and then kept")
    parser.add_argument("--k", type=int, metavar="k", help="use the first k samples (default: all)")
    dtypes = ["float32", "float64"]
    parser.add_argument("--dtype", choices=dtypes, default="float64", help="of the arithmetic (default float64)")
    add_device_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from equibayes.run.progress import choose_display
    from equibayes.solids.crystal import check_packages
    from equibayes.solids.properties import PROPERTIES, properties
    from equibayes.solids.results import lines

    check_output("json", arguments.json, ".json")
    check_output("plot", arguments.plot, ".svg", ".pdf", ".png")
    check_output("report", arguments.report, ".html")
    only = PROPERTIES if arguments.only is None else tuple(word.strip() for word in arguments.only.split(","))
    potentials = _potentials(arguments.mu)
    check_packages()
    device = chosen_device(arguments)
    posterior = load(arguments.posterior)
    if arguments.k is not None:
        posterior = posterior.subset(arguments.k)
    display = choose_display("properties", describe_progress)
    try:
        found = properties(
            posterior,
            arguments.structure,
            only=only,
            supercell_length=arguments.supercell_length,
            chemical_potentials=potentials,
            symprec=arguments.symprec,
            device=device,
            dtype=arguments.dtype,
            display=display,
        )
    finally:
        display.stop()
    print("\n".join(lines(found)))
    name = Path(arguments.posterior).name
    if arguments.json:
        values = {"posterior": name, **found.to_dict()}
        write_text(arguments.json, json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        print(f"every number written to {arguments.json}")
    if arguments.plot:
        found.plot(arguments.plot)
        print(f"figure written to {arguments.plot}")
    if arguments.report:
        from equibayes.evaluation.report.words import samples

        found.report(arguments.report, f"{name}: {samples(posterior)}")
        print(f"report written to {arguments.report}")
    return 0


def describe_progress(record: dict[str, Any]) -> dict[str, str]:
    """What a display shows: the property, and how far its structures still are from rest."""
    words = {"property": record["what"]}
    if record.get("largest_force"):
        words["largest force"] = f"{1e3 * record['largest_force']:.2g} meV/Å"
    return words


def _potentials(given: list[str]) -> dict[str, float]:
    """`O=-4.93` as a symbol and a number."""
    found = {}
    for word in given:
        symbol, _, value = word.partition("=")
        try:
            found[symbol.strip()] = float(value)
        except ValueError:
            raise InputError(f"--mu {word}: a species and an energy in eV are needed, such as O=-4.93") from None
    return found
