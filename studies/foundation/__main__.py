"""A posterior around a foundation model against what else can be done with few frames.

    python -m studies.foundation --system ethanol --frames 20 50 --method tune ensemble --seed 0 1 2
    python -m studies.foundation --system ethanol --method zero          # the network as it is
    python -m studies.foundation --tables results/foundation             # table and figure of a folder of results

Writes one JSON file per run, SYSTEM-METHOD-FRAMES-SEED[-NAME].json; a run whose file is there is not repeated.
"""

import argparse
from itertools import product
from pathlib import Path
from typing import Any

from equibayes.errors import InputError
from studies.foundation import figure, methods, tables, zero
from studies.foundation.systems import SYSTEMS, frames
from studies.shared.options import add_commit, add_device, add_quick, add_settings, parser_of, start
from studies.shared.results import provenance, save_json

METHODS = ("zero", "tune", "ensemble", "scratch")


def options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--system", choices=SYSTEMS)
    parser.add_argument("--method", nargs="+", choices=METHODS, default=["tune"])
    parser.add_argument("--frames", nargs="+", type=int, default=[20], help="to learn from (default: 20)")
    parser.add_argument("--test", type=int, default=200, help="frames to test on, at most (default: %(default)s)")
    parser.add_argument("--seed", nargs="+", type=int, default=[0], help="of the split and of the run (default: 0)")
    parser.add_argument("--from", dest="center", default="7net-0", help="name or checkpoint (default: %(default)s)")
    parser.add_argument("--factor", type=float, default=1.0, help="multiplies the width of the prior")
    parser.add_argument("--name", default="", help="added to the name of the file")
    parser.add_argument("--output", type=Path, default=Path("build/foundation"))
    parser.add_argument(
        "--tables", type=Path, metavar="FOLDER", help="print the table of what is there, draw comparison.png, end"
    )
    add_device(parser)
    add_commit(parser)
    add_settings(parser)
    add_quick(parser, "a minute")
    return parser.parse_args()


def main() -> None:
    given = options()
    if given.tables is not None:
        print(tables.of(given.tables))
        figure.draw(given.tables, given.tables / "comparison.png")
        return
    if given.system is None:
        raise InputError(f"--system: choose one of {', '.join(SYSTEMS)}")
    for count, seed, method in product(given.frames, given.seed, given.method):
        one(given, method, count, seed)


def one(given: argparse.Namespace, method: str, count: int, seed: int) -> None:
    """One run, unless its file is there."""
    parts = [given.system, method, str(count), str(seed), *([given.name] if given.name else [])]
    path = given.output / f"{'-'.join(parts)}.json"
    if path.exists():
        print(f"{path} is there")
        return
    quick = ["burn_in.steps=8", "cycles.length=4", "chains=2", "samples=2"] if given.quick else []
    train, tests = frames(given.system, count, 4 if given.quick else given.test, seed)
    size = {name: len(test) for name, test in tests.items()}
    about = {"system": given.system, "method": method, "frames": len(train), "test": size, "seed": seed}
    if method == "zero":
        results = {name: zero.measured(given.center, test, given.device) for name, test in tests.items()}
        found: dict[str, Any] = {"settings": []}
    else:
        config = methods.config_of(method, given.center, seed, [*given.set, *quick])
        posterior, found = methods.made(method, config, train, given.factor, given.device)
        results = {name: methods.judged(posterior, test, given.device) for name, test in tests.items()}
        found |= {"settings": given.set, "factor": given.factor}
    content = about | found | {"results": results, "result": next(iter(results.values()))}
    content |= {"center": Path(given.center).name, "provenance": provenance(given.commit)}
    save_json(path, content)
    mae = content["result"]["mae"]
    print(f"{path}: force MAE {mae:.1f} meV/Å", flush=True)


start(main)
