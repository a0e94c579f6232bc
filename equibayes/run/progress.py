"""What a person sees while chains run: a live table on a terminal, plain lines in a log file."""

import sys
import time
from statistics import fmean
from typing import Any, Protocol


class Display(Protocol):
    """Told by the runner what happens."""

    def start(self, total_steps: int, first_step: int) -> None: ...
    def advance(self, step: int) -> None: ...
    def show(self, record: dict[str, Any]) -> None: ...
    def say(self, message: str) -> None: ...
    def stop(self) -> None: ...


class Silent:
    """For programs that call us."""

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


class PlainDisplay(Silent):
    """One line now and then, for log files and pipes."""

    def __init__(self, seconds: float = 10.0) -> None:
        self.seconds, self.last = seconds, 0.0
        self.clock = Clock(0, 0)

    def start(self, total_steps: int, first_step: int) -> None:
        self.clock = Clock(total_steps, first_step)

    def show(self, record: dict[str, Any]) -> None:
        final = record["step"] >= self.clock.total
        if final or time.monotonic() - self.last >= self.seconds:
            self.last = time.monotonic()
            words = [f"{name} {text}" for name, text in describe(record).items()]
            print(
                f"step {record['step']}/{self.clock.total}  "
                + "  ".join(words)
                + f"  left {self.clock.left(record['step'])}",
                flush=True,
            )

    def say(self, message: str) -> None:
        print(message, flush=True)


class LiveDisplay(Silent):
    """A progress bar with the numbers that tell whether the run is well, on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.console = Console()
        self.progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self.live = Live(self.progress, console=self.console, refresh_per_second=4)
        self.task: Any = None

    def start(self, total_steps: int, first_step: int) -> None:
        self.task = self.progress.add_task("sampling", total=total_steps, completed=first_step)
        self.live.start()

    def advance(self, step: int) -> None:
        self.progress.update(self.task, completed=step)

    def show(self, record: dict[str, Any]) -> None:
        from rich.console import Group
        from rich.table import Table

        table = Table(show_header=True, header_style="bold", pad_edge=False)
        entries = describe(record)
        for name in entries:
            table.add_column(name, justify="right")
        table.add_row(*entries.values())
        self.live.update(Group(self.progress, table))
        self.progress.update(self.task, completed=record["step"])

    def say(self, message: str) -> None:
        self.live.console.print(message, markup=False, highlight=False)

    def stop(self) -> None:
        self.live.stop()


class Clock:
    """Time left, from the pace since the start."""

    def __init__(self, total_steps: int, first_step: int) -> None:
        self.total, self.first, self.begun = total_steps, first_step, time.monotonic()

    def left(self, step: int) -> str:
        done = step - self.first
        if done <= 0:
            return "?"
        seconds = (time.monotonic() - self.begun) / done * (self.total - step)
        hours, rest = divmod(int(seconds), 3600)
        return f"{hours}:{rest // 60:02d}:{rest % 60:02d}"


def describe(record: dict[str, Any]) -> dict[str, str]:
    """The numbers of a record that a person wants to see, means over the chains that are not given up, with units."""
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
    if record.get("r_hat"):
        words["R-hat"] = f"{record['r_hat']:.2f}"
    return words


def choose_display() -> Display:
    """Live on a terminal, plain lines elsewhere."""
    return LiveDisplay() if sys.stdout.isatty() else PlainDisplay()
