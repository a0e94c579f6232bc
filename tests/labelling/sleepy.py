"""An engine that is slow once: whichever structure comes first takes its time."""

import time
from pathlib import Path
from typing import Any

from ase.calculators.emt import EMT


class Sleepy(EMT):
    """EMT; the first calculation of all that name the same file sleeps for some seconds."""

    def __init__(self, once: str, seconds: float) -> None:
        super().__init__()
        self.once, self.seconds = Path(once), seconds

    def calculate(self, atoms: Any = None, properties: Any = (), system_changes: Any = ()) -> None:
        try:
            self.once.touch(exist_ok=False)
            time.sleep(self.seconds)
        except FileExistsError:
            pass
        super().calculate(atoms, properties, system_changes)
