"""Where results come from and how they are written: provenance, JSON, figures."""

import json
import math
from pathlib import Path
from typing import Any

from benchmarks.provenance import provenance as measured
from equibayes.files import make_folder, write_atomically, write_text

PACKAGES = ("torch", "numpy", "equibayes")
LABELLING_PACKAGES = (*PACKAGES, "ase", "tblite")


def provenance(commit: str | None = None, packages: tuple[str, ...] = PACKAGES) -> dict[str, Any]:
    """Commit (the one given, else that of git), hardware, versions and time."""
    found = measured(packages)
    return {**found, "commit": commit} if commit else found


def save_json(path: Path, content: dict[str, Any], *, indent: int | None = 1) -> None:
    """Written as a whole or not at all; the folder is made where it is missing."""
    make_folder(path.parent)
    write_text(path, json.dumps(finite(content), indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def finite(value: Any) -> Any:
    """The same with null for every number that is not finite, which JSON cannot hold."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: Path) -> Any:
    """The content of the file; None where there is no such file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def save_figure(figure: Any, path: Path) -> None:
    """A PNG of at most 256 colours: lines and text lose nothing, and the file is a third as large."""
    from PIL import Image

    def write(place: Path) -> None:
        figure.savefig(place, format="png", dpi=130, facecolor="white")
        with Image.open(place) as image:
            flat = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        flat.save(place, format="png", optimize=True)

    write_atomically(path, write)
