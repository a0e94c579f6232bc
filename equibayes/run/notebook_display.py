"""Progress in a notebook: a bar with the latest numbers, as HTML that is replaced while a cell runs."""

import time
from typing import Any

from equibayes.notebook import html_table
from equibayes.run.progress import Clock, Describe, Silent, describe

SECONDS = 0.3
"""Between two updates."""


class NotebookDisplay(Silent):
    """The `Display` of a Jupyter kernel; needs IPython, which every kernel has, and no widgets."""

    def __init__(self, title: str = "sampling", describe: Describe = describe) -> None:
        self.title, self.describe = title, describe
        self.clock, self.step = Clock(0, 0), 0
        self.entries: dict[str, str] = {}
        self._shown: Any = None
        self._updated = 0.0

    def start(self, total_steps: int, first_step: int) -> None:
        from IPython.display import HTML, display

        self.clock, self.step, self.entries = Clock(total_steps, first_step), first_step, {}
        self._shown = display(HTML(self.html()), display_id=True)

    def advance(self, step: int) -> None:
        self.step = step
        self._update()

    def show(self, record: dict[str, Any]) -> None:
        self.step, self.entries = record["step"], self.describe(record)
        self._update()

    def say(self, message: str) -> None:
        print(message, flush=True)

    def stop(self) -> None:
        self._update(at_once=True)

    def html(self) -> str:
        """Bar, steps, remaining time and the table."""
        bar = f'<progress value="{self.step}" max="{self.clock.total}"></progress>'
        words = f"{self.title} {bar} step {self.step} of {self.clock.total}"
        left = "" if self.step >= self.clock.total else f", {self.clock.left(self.step)} left"
        return f"<div>{words}{left}</div>{html_table(self.entries.items()) if self.entries else ''}"

    def _update(self, at_once: bool = False) -> None:
        from IPython.display import HTML

        if self._shown is not None and (at_once or time.monotonic() - self._updated > SECONDS):
            self._updated = time.monotonic()
            self._shown.update(HTML(self.html()))
