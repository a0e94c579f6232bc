"""What a simulation found, as a file for programs beside what is printed for people."""

import json
from math import isfinite
from pathlib import Path
from typing import Any

from equibayes.files import write_text
from equibayes.simulate.md import folder_of


def write_summary(output: str | Path, summary: dict[str, Any]) -> None:
    """summary.json in the folder beside the trajectory; numbers that are not finite become null."""
    text = json.dumps(_plain(summary), indent=1, ensure_ascii=False, allow_nan=False)
    write_text(folder_of(output) / "summary.json", text + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value
