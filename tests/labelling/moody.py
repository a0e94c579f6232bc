"""An engine on bad days: what it does depends on x of the first atom."""

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
from ase.calculators.calculator import Calculator

RAISES, HANGS, EXITS, ABORTS, GIVES_NAN, GIVES_WRONG_SHAPE, CHATTERS, WAITS_FOR_CHILD = range(1, 9)


class Moody(Calculator):
    """x of the first atom in Å is one of the moods above; 0 and all else is a good day.  The energy is the number of
    its process.
    """

    implemented_properties = ["energy", "forces"]  # noqa: RUF012
    default_parameters = {"force": 0.5, "child_file": None}  # noqa: RUF012

    def calculate(self, atoms: Any = None, properties: Any = (), system_changes: Any = ()) -> None:
        super().calculate(atoms, properties, system_changes)
        mood = round(self.atoms.positions[0, 0])
        if mood == RAISES:
            raise RuntimeError("no\nconvergence")
        if mood == HANGS:
            time.sleep(1000)
        if mood == EXITS:
            os.write(2, b"out of luck\n")
            os._exit(3)
        if mood == ABORTS:
            os.abort()
        if mood == CHATTERS:
            os.write(1, b"iteration 1\n" * 100_000)
        if mood == WAITS_FOR_CHILD:
            with subprocess.Popen(["sleep", "1000"]) as child:
                Path(self.parameters["child_file"]).write_text(str(child.pid))
        force = np.nan if mood == GIVES_NAN else self.parameters["force"]
        forces = np.full((len(self.atoms) + (mood == GIVES_WRONG_SHAPE), 3), force)
        self.results = {"energy": float(os.getpid()), "forces": forces}
