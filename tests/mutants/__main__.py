"""Change the code in many small ways and count how many changes the tests notice.

One test process at a time, at a low priority.  Ctrl-C ends it with what is known so far.
"""

import argparse
import json
import os
import random
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.provenance import provenance, write_json
from tests.mutants.faults import EQUIVALENT, FAULTS
from tests.mutants.mutate import Mutant, candidates, is_another_program
from tests.mutants.trials import ROOT, Runner, Trials, copied_tree
from tests.mutants.which_tests import FOLDERS, first, then

Row = dict[str, Any]
CAUGHT = ("killed", "timeout")


def main() -> int:
    chosen = options()
    os.nice(max(0, 10 - os.nice(0)))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    work = deliberate() if chosen.faults_only else [*deliberate(), *at_random(chosen.seed, chosen.limit)]
    about = {
        **provenance(),
        "command": shlex.join(["python", "-m", "tests.mutants", *sys.argv[1:]]),
        "seed": chosen.seed,
    }
    earlier = caught(chosen.output) if chosen.resume else {}
    rows: list[Row] = []
    try:
        with copied_tree() as copy, Runner(copy) as runner:
            for row in results(Trials(copy, runner, chosen.time_limit), work, earlier, chosen.quick):
                rows.append({"commit": about["commit"], **row})
                say(rows[-1], f"{len(rows)}/{len(work)}")
                counts = Counter(row["outcome"] for row in rows)
                write_json(chosen.output, {**about, "planned": len(work), "counts": counts, "changes": rows})
    except KeyboardInterrupt:
        print(f"\nstopped after {len(rows)} of {len(work)}")
    print(table(rows))
    return 0


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--limit", type=int, default=100, help="changes chosen at random (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice; a larger limit adds to the same choice")
    parser.add_argument("--faults-only", action="store_true", help="the deliberate faults alone")
    parser.add_argument(
        "--time-limit", type=float, default=600, help="s, at most, for tests of a change (default: %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="the likeliest tests alone, so that more changes survive")
    parser.add_argument(
        "--resume", action="store_true", help="keep what the run of the output has caught; the rest is tried (again)"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "mutants" / "report.json", help="JSON")
    return parser.parse_args()


def deliberate() -> list[Mutant]:
    return [fault.mutant((ROOT / fault.path).read_text(encoding="utf-8")) for fault in FAULTS]


def at_random(seed: int, limit: int) -> list[Mutant]:
    """The first of all changes of the packages in an order that depends on the seed alone."""
    sources = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in source_files()}
    found = [mutant for path, source in sources.items() for mutant in candidates(path, source)]
    random.Random(seed).shuffle(found)
    return list(islice((each for each in found if is_another_program(each, sources[each.path])), limit))


def source_files() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / "equibayes" / folder).glob("*.py"))]


def caught(path: Path) -> dict[tuple[str, ...], Row]:
    """What an earlier run has caught, by change."""
    rows = json.loads(path.read_text(encoding="utf-8"))["changes"] if path.exists() else []
    return {identity(row): row for row in rows if row["outcome"] in CAUGHT}


def identity(row: Row) -> tuple[str, ...]:
    return tuple(str(row[key]) for key in ("path", "line", "kind", "before", "after"))


def results(trials: Trials, work: Iterable[Mutant], earlier: dict[tuple[str, ...], Row], quick: bool) -> Iterator[Row]:
    for mutant in work:
        before, after = mutant.lines((ROOT / mutant.path).read_text(encoding="utf-8"))
        place = {"path": mutant.path, "line": mutant.line, "kind": mutant.kind, "before": before, "after": after}
        if (mutant.path, before, after) in EQUIVALENT:
            yield {**place, "outcome": "equivalent", "seconds": 0.0}
        elif identity(place) in earlier:
            yield earlier[identity(place)]
        else:
            stages = [first(mutant.path)] if quick else [first(mutant.path), then(mutant.path)]
            found, seconds = trials.outcome(mutant, stages)
            yield {**place, "outcome": found, "seconds": seconds}


def say(row: Row, count: str) -> None:
    print(f"{count} {row['outcome']:10} {row['seconds']:6.1f} s  {row['path']}:{row['line']} {row['kind']}", flush=True)
    if row["outcome"] == "survived":
        print(f"    - {row['before']}\n    + {row['after']}", flush=True)


def table(rows: list[Row]) -> str:
    """Changes by package and outcome; a change that never ends is noticed too."""
    outcomes = (*CAUGHT, "survived", "equivalent")
    lines = ["| package | changes | " + " | ".join(outcomes) + " |", "|---" * 6 + "|"]
    packages = sorted({row["path"].split("/")[1] for row in rows})
    for name in (*packages, "all"):
        count = Counter(r["outcome"] for r in rows if name == "all" or r["path"].split("/")[1] == name)
        lines.append(f"| {name} | {count.total()} | " + " | ".join(str(count[each]) for each in outcomes) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
