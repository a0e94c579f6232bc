"""Where the potential is inserted into a LAMMPS script.

It needs the box, and must be defined before its quantities are used and before the first run.  It is inserted before
the first line that

    says `# equibayes here`, or
    uses one of its quantities (`f_equibayes`, `v_max_devi_f`, …), except in `variable`, which is evaluated later, or
    runs: `run`, `minimize`, `rerun`, …

LAMMPS then reads the same script from that line on, so that loops (`label`, `jump SELF`) may also jump back before it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from equibayes.errors import InputError

MARK = "# equibayes here"
QUANTITIES = ("max_devi_f", "avg_devi_f", "min_devi_f", "energy_std", "pressure_std")
"""Equal-style variables that the potential defines, in the order of the vector `f_equibayes[1..5]`."""

LEVELS = ("trust_lo", "trust_hi")
"""Trust levels, as variables if given."""

_RUNS = ("run", "minimize", "rerun", "dynamical_matrix", "third_order")
_VARIABLES = "|".join((*QUANTITIES, *LEVELS))
_NAMES = re.compile(rf"\bf_equibayes\b|\bd_devi_f\b|\bv_({_VARIABLES})\b|\$\{{({_VARIABLES})\}}")
_LABEL = "equibayes_goes_on"


@dataclass(frozen=True)
class Script:
    """Lines of a script, and the first one (counted from 0) that needs the potential."""

    path: Path
    lines: list[str]
    first: int

    @property
    def before(self) -> str:
        """What LAMMPS reads before the potential is inserted."""
        return "\n".join(self.lines[: self.first]) + "\n"

    @property
    def after(self) -> str:
        """What it reads afterwards: the whole script, entered at line `first`."""
        parts = [f"jump SELF {_LABEL}", *self.lines[: self.first], f"label {_LABEL}", *self.lines[self.first :]]
        return "\n".join(parts) + "\n"

    def lacks(self, name: str) -> bool:
        """Whether it uses a variable that it does not define."""
        code = [line.split("#")[0] for line in self.lines]
        defined = any(line.split()[:2] == ["variable", name] for line in code)
        return not defined and any(re.search(rf"\bv_{name}\b|\$\{{{name}\}}", line) for line in code)

    def says_before(self, *commands: str) -> bool:
        """Whether one of these commands comes before the potential."""
        return any(_command(line) in commands for line in self.lines[: self.first])


def read_script(path: str | Path) -> Script:
    """A script; an `InputError` if the potential cannot be inserted."""
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as cause:
        raise InputError(f"{path}: cannot be read ({cause.strerror or cause}); name a LAMMPS script") from cause
    except UnicodeDecodeError as cause:
        raise InputError(f"{path}: cannot be read as a LAMMPS script ({cause})") from cause
    first = next((i for i, text in _statements(lines) if _needs(text)), None)
    if first is None:
        raise InputError(
            f"{path}: no run or minimize here; if it is in an included file, put the line '{MARK}' before the include"
        )
    for i, text in _statements(lines):
        words = text.split("#")[0].split()
        if i >= first and (
            words[:1] == ["clear"] or (words[:1] == ["unfix"] and " ".join(words[1:]).startswith("equibayes"))
        ):
            raise InputError(
                f"{path}, line {i + 1}: '{' '.join(words)}' would remove the potential; use one script for each system"
            )
    return Script(path, lines, first)


def _statements(lines: list[str]) -> list[tuple[int, str]]:
    """Number of the first line and text of each command; `&` at the end of a line continues it."""
    found: list[tuple[int, str]] = []
    going_on = False
    for i, line in enumerate(lines):
        start, text = found.pop() if going_on else (i, "")
        going_on = line.rstrip().endswith("&")
        found.append((start, f"{text} {line.rstrip().removesuffix('&')}"))
    return found


def _needs(text: str) -> bool:
    if text.strip().startswith(MARK):
        return True
    code, command = text.split("#")[0], _command(text)
    if command == "variable":
        return False
    within_if = command == "if" and re.search(rf"[\"']\s*({'|'.join(_RUNS)})\s", code)
    return command in _RUNS or bool(within_if) or bool(_NAMES.search(code))


def _command(text: str) -> str:
    words = text.split("#")[0].split()
    return words[0] if words else ""
