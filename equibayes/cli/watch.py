"""A progress bar over structures, on a terminal; nothing in a log file."""

import sys
from collections.abc import Iterable, Iterator

from equibayes.data.structures import Structure


def watched(structures: Iterable[Structure], what: str, total: int | None = None) -> Iterator[Structure]:
    """The same structures; how many have gone by and how long the rest will take is shown on stderr."""
    if not sys.stderr.isatty():
        yield from structures
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    title = TextColumn("{task.description}", markup=False)  # brackets in a file name are no markup
    with Progress(title, *columns, console=Console(stderr=True), transient=True) as progress:
        yield from progress.track(structures, total=total, description=what)
