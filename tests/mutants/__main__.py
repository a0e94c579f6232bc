"""Change the code in many small ways and count how many changes the tests notice.

One test process at a time, at a low priority.  Ctrl-C ends it with what is known so far.
"""

import argparse
import os
import random
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.provenance import provenance, write_json
from tests.mutants.faults import EQUIVALENT, FAULTS
from tests.mutants.mutate import Mutant, candidates, is_another_program
from tests.mutants.trials import ROOT, Trials, copied_tree
from tests.mutants.which_tests import FOLDERS, first, then

Row = dict[str, Any]


def main() -> int:
    chosen = options()
    os.nice(max(0, 10 - os.nice(0)))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    work = deliberate() if chosen.faults_only else [*deliberate(), *at_random(chosen.seed, chosen.limit)]
    rows: list[Row] = []
    try:
        with copied_tree() as copy:
            for row in results(Trials(copy, chosen.time_limit), work):
                rows.append(row)
                report(chosen.output, rows, chosen, len(work))
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


def results(trials: Trials, work: Iterable[Mutant]) -> Iterator[Row]:
    for mutant in work:
        before, after = mutant.lines((ROOT / mutant.path).read_text(encoding="utf-8"))
        place = {"path": mutant.path, "line": mutant.line, "kind": mutant.kind, "before": before, "after": after}
        if (mutant.path, before, after) in EQUIVALENT:
            yield {**place, "outcome": "equivalent", "seconds": 0.0}
            continue
        found, seconds = trials.outcome(mutant, [first(mutant.path), then(mutant.path)])
        yield {**place, "outcome": found, "seconds": seconds}


def report(path: Path, rows: list[Row], chosen: argparse.Namespace, total: int) -> None:
    """One line on the terminal, and everything so far in the file."""
    row = rows[-1]
    print(
        f"{len(rows)}/{total} {row['outcome']:10} {row['seconds']:6.1f} s  {row['path']}:{row['line']} {row['kind']}",
        flush=True,
    )
    if row["outcome"] == "survived":
        print(f"    - {row['before']}\n    + {row['after']}", flush=True)
    about = {"command": f"python -m tests.mutants --limit {chosen.limit} --seed {chosen.seed}", "seed": chosen.seed}
    write_json(
        path,
        {**provenance(), **about, "planned": total, "counts": Counter(r["outcome"] for r in rows), "changes": rows},
    )


def table(rows: list[Row]) -> str:
    """Changes by package and outcome; a change that never ends is noticed too."""
    outcomes = ("killed", "timeout", "survived", "equivalent")
    lines = ["| package | changes | " + " | ".join(outcomes) + " |", "|---" * 6 + "|"]
    packages = sorted({row["path"].split("/")[1] for row in rows})
    for name in (*packages, "all"):
        count = Counter(r["outcome"] for r in rows if name == "all" or r["path"].split("/")[1] == name)
        lines.append(f"| {name} | {count.total()} | " + " | ".join(str(count[each]) for each in outcomes) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
