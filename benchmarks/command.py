"""The command line that the CPU benchmarks share, and where they write."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from provenance import RESULTS, provenance, write_json
from rich.table import Table

JOB = "--job"


def parse(
    doc: str | None,
    *,
    rounds: int,
    quick: str,
    threads: str = "CPU threads",
    default_threads: int = 2,
    parts: tuple[str, ...] = (),
    more: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
) -> Any:
    """The options; quick: what --quick does;  parts: what --only can choose;  more: adds options."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    more(parser)
    if parts:
        parser.add_argument(
            "--only", nargs="+", choices=parts, default=parts, help="some parts; the file keeps the rest"
        )
    parser.add_argument("--quick", action="store_true", help=f"{quick}: only shows that it runs")
    parser.add_argument("--output", type=Path, default=None, help="JSON file to write")
    parser.add_argument("--rounds", type=int, default=rounds, help="repeats of each measurement")
    parser.add_argument("--threads", type=int, default=default_threads, help=threads)
    return parser.parse_args()


def ran_job(work: Callable[[dict[str, Any]], dict[str, Any]]) -> bool:
    """Whether this process was started by `measure.in_fresh_process`; then the result of its work is printed."""
    if JOB not in sys.argv:
        return False
    print(json.dumps(work(json.loads(sys.argv[sys.argv.index(JOB) + 1]))))
    return True


def number_table(title: str, columns: tuple[str, ...]) -> Table:
    """Columns of numbers; one without a title holds names."""
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    return table


def save(result: dict[str, Any], options: Any, name: str, packages: tuple[str, ...]) -> None:
    """To --output, or to results/speed unless --quick, with provenance."""
    output = options.output or (None if options.quick else RESULTS / name)
    if output:
        write_json(output, result | provenance(packages))
        print(f"written to {output}")


def save_parts(
    parts: dict[str, Any], options: Any, name: str, packages: tuple[str, ...], **about: Any
) -> dict[str, Any]:
    """The same for results in parts, each with a provenance of its own; returns all that the file has now."""
    output = options.output or (None if options.quick else RESULTS / name)
    known: dict[str, Any] = json.loads(output.read_text()) if output and output.is_file() and not options.quick else {}
    found = {part: {"rows": rows, **provenance(packages)} for part, rows in parts.items()}
    result = about | {"parts": known.get("parts", {}) | found}
    if output:
        write_json(output, result)
        print(f"written to {output}", flush=True)
    return result
