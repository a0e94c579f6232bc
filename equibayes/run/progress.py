"""Progress shown to the user: a bar with a table of numbers on a terminal, occasional plain lines in a log file.

A run, of chains or of molecular dynamics, reports records to a `Display`.  What a record shows is decided by the
function given to the display: `describe` for chains, `simulate.log.describe_step` for molecular dynamics.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from statistics import fmean
from typing import Any, Protocol, TypeVar

from equibayes.notebook import in_notebook
from equibayes.sampling.diagnostics import MINIMUM_DRAWS
from equibayes.units import GPA

Item = TypeVar("Item")
Describe = Callable[[dict[str, Any]], dict[str, str]]
"""From a record to the names and texts to show."""


class Display(Protocol):
    """Receives the progress of one run after another.  A record has a `step`; its other entries depend on the run."""

    def start(self, total_steps: int, first_step: int) -> None: ...
    def advance(self, step: int) -> None: ...
    def show(self, record: dict[str, Any]) -> None: ...
    def say(self, message: str) -> None: ...
    def stop(self) -> None: ...


class Silent:
    """Shows nothing: for runs started from Python."""

    def start(self, total_steps: int, first_step: int) -> None:
        pass

    def advance(self, step: int) -> None:
        pass

    def show(self, record: dict[str, Any]) -> None:
        pass

    def say(self, message: str) -> None:
        pass

    def stop(self) -> None:
        pass


def describe(record: dict[str, Any]) -> dict[str, str]:
    """The main numbers of a record of sampling, with units: means over the chains that have not failed."""
    failed = record.get("failed") or [False] * len(record["learning_rate"])

    def mean(name: str) -> float:
        numbers = [value for value, out in zip(record[name], failed) if value is not None and not out]
        return fmean(numbers) if numbers else float("nan")

    words = {
        "phase": "burn-in" if record["phase"] == "burn_in" else f"cycle {record['cycle'] + 1}",
        "γ": f"{mean('learning_rate'):.1e}",
        "ln posterior": f"{mean('log_posterior'):.0f}",
        "force error": f"{1000 * mean('force_mae'):.1f} meV/Å",
        "σ": f"{1000 * mean('force_sigma'):.1f} meV/Å",
        "temperature": f"{mean('kinetic_temperature'):.2f}",
    }
    if record.get("validation_force_mae"):
        words["held-back error"] = f"{1000 * mean('validation_force_mae'):.1f} meV/Å"
    if record.get("validation_stress_mae"):
        words["stress error"] = f"{mean('validation_stress_mae') / GPA:.2f} GPa"
    if record.get("r_hat"):
        words["R-hat"] = f"{record['r_hat']:.2f}"
    elif record.get("draws_per_chain") is not None:
        words["R-hat"] = f"undefined ({record['draws_per_chain']} of {MINIMUM_DRAWS} draws)"
    return words


class PlainDisplay(Silent):
    """Lines of text at intervals of `seconds`, for log files and pipes."""

    def __init__(self, seconds: float = 10.0, describe: Describe = describe) -> None:
        self.seconds, self.describe, self.last = seconds, describe, 0.0
        self.clock = Clock(0, 0)

    def start(self, total_steps: int, first_step: int) -> None:
        self.clock, self.last = Clock(total_steps, first_step), 0.0

    def advance(self, step: int) -> None:
        """The time that is left, as soon as it is known, where the first record comes late."""
        if not self.last and self.clock.seconds() >= self.seconds:
            self.last = time.monotonic()
            print(f"step {step}/{self.clock.total}  left {self.clock.left(step)}", flush=True)

    def show(self, record: dict[str, Any]) -> None:
        step, total = record["step"], self.clock.total
        if step >= total or time.monotonic() - self.last >= self.seconds:
            self.last = time.monotonic()
            words = [f"{name} {text}" for name, text in self.describe(record).items()]
            print("  ".join([f"step {step}/{total}", *words, f"left {self.clock.left(step)}"]), flush=True)

    def say(self, message: str) -> None:
        print(message, flush=True)


class LiveDisplay(Silent):
    """A progress bar above a table of the latest numbers, on a terminal."""

    def __init__(self, title: str = "sampling", describe: Describe = describe) -> None:
        from rich.live import Live

        self.title, self.describe = title, describe
        self.progress = _bar()
        self.live = Live(self.progress, refresh_per_second=4)
        self.task: Any = None

    def start(self, total_steps: int, first_step: int) -> None:
        if self.task is not None:  # that of the run before
            self.progress.remove_task(self.task)
        self.task = self.progress.add_task(self.title, total=total_steps, completed=first_step)
        self.live.start()

    def advance(self, step: int) -> None:
        self.progress.update(self.task, completed=step)

    def show(self, record: dict[str, Any]) -> None:
        from rich.console import Group
        from rich.table import Table

        table = Table(show_header=True, header_style="bold", pad_edge=False)
        entries = self.describe(record)
        for name in entries:
            table.add_column(name, justify="right")
        table.add_row(*entries.values())
        self.live.update(Group(self.progress, table))
        self.advance(record["step"])

    def say(self, message: str) -> None:
        self.live.console.print(message, markup=False, highlight=False)

    def stop(self) -> None:
        self.live.stop()


def default_display(title: str = "sampling", describe: Describe = describe) -> Display:
    """Of what is started from Python: a bar in a notebook, nothing elsewhere."""
    if not in_notebook():
        return Silent()
    from equibayes.run.notebook_display import NotebookDisplay

    return NotebookDisplay(title, describe)


def choose_display(title: str = "sampling", describe: Describe = describe) -> Display:
    """Live on a terminal, plain lines elsewhere."""
    return LiveDisplay(title, describe) if sys.stdout.isatty() else PlainDisplay(describe=describe)


def watched(items: Iterable[Item], what: str, total: int | None = None) -> Iterator[Item]:
    """The same items, with a bar on stderr that counts them; without a terminal nothing is shown."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console

    with _bar(console=Console(stderr=True), transient=True) as progress:
        yield from progress.track(items, total=total, description=what)


def _bar(**options: Any) -> Any:
    """Title, bar, count, elapsed and remaining time."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    title = TextColumn("{task.description}", style="bold", markup=False)  # brackets in a file name are not markup
    return Progress(title, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(), **options)


class Clock:
    """Estimates the remaining time from the pace since the start."""

    def __init__(self, total_steps: int, first_step: int) -> None:
        self.total, self.first, self.begun = total_steps, first_step, time.monotonic()

    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.begun

    def left(self, step: int) -> str:
        done = step - self.first
        if done <= 0:
            return "?"
        seconds = self.seconds() / done * (self.total - step)
        hours, rest = divmod(int(seconds), 3600)
        return f"{hours}:{rest // 60:02d}:{rest % 60:02d}"
