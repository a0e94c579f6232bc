"""What a person sees while a simulation runs: one live line on a terminal, a plain line now and then elsewhere."""

import sys
import time
from typing import Any, Protocol


class MdDisplay(Protocol):
    """Told by the simulation what happens."""

    def start(self, steps: int, first: int) -> None: ...
    def show(self, step: int, words: str) -> None: ...
    def say(self, message: str) -> None: ...
    def stop(self) -> None: ...


class Silent:
    """For programs that call us."""

    def start(self, steps: int, first: int) -> None:
        pass

    def show(self, step: int, words: str) -> None:
        pass

    def say(self, message: str) -> None:
        pass

    def stop(self) -> None:
        pass


class PlainLines(Silent):
    """For log files and pipes."""

    def __init__(self, seconds: float = 10.0) -> None:
        self.seconds, self.steps = seconds, 0
        self.last = time.monotonic()

    def start(self, steps: int, first: int) -> None:
        self.steps = steps

    def show(self, step: int, words: str) -> None:
        if step >= self.steps or time.monotonic() - self.last >= self.seconds:
            self.last = time.monotonic()
            print(f"step {step}/{self.steps}  {words}", flush=True)

    def say(self, message: str) -> None:
        print(message, flush=True)


class LiveLine(Silent):
    """A bar with the numbers that tell whether the simulation is well."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        numbers = TextColumn("{task.description}", markup=False)
        self.progress = Progress(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), numbers)
        self.task: Any = None

    def start(self, steps: int, first: int) -> None:
        self.task = self.progress.add_task("", total=steps, completed=first)
        self.progress.start()

    def show(self, step: int, words: str) -> None:
        self.progress.update(self.task, completed=step, description=words)

    def say(self, message: str) -> None:
        self.progress.console.print(message, markup=False, highlight=False)

    def stop(self) -> None:
        self.progress.stop()


def choose_display() -> MdDisplay:
    return LiveLine() if sys.stdout.isatty() else PlainLines()
