"""DATA as users write it: `file`, `file@0:500`, `file@train_01`, `file@splits.json:train`, `bundled:ethanol@test`."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from equibayes.data.files import bare_stem, one_line
from equibayes.data.splits import load_splits
from equibayes.data.structures import IntArray
from equibayes.errors import InputError
from equibayes.plural import counted

BUNDLED = Path(__file__).parent / "bundled"
_RANGE = re.compile(r"([+-]?\d+)?:([+-]?\d+)?(?::([+-]?\d+)?)?")


@dataclass(frozen=True)
class Spec:
    """A data file and the part of it that is selected.

    `file` is the name that messages use; `split` is the text after the @, None for all frames.
    """

    path: Path
    file: str
    split: str | None

    @property
    def name(self) -> str:
        """As the data set is called."""
        return self.file if self.split is None else one_line(f"{self.file}@{self.split}", 300)


def absolute(spec: Spec) -> str:
    """Text that means the same in any folder."""
    if spec.file.startswith("bundled:"):
        return spec.name
    part = "" if spec.split is None else f"@{spec.split}"
    return f"{spec.path.resolve()}{part}"


def parse_spec(text: str | Path) -> Spec:
    """Parse a spec.  A file name may contain an @: the longest prefix that is a file is taken."""
    whole = str(text)
    if whole.startswith("bundled:"):
        name, at, part = whole.removeprefix("bundled:").partition("@")
        known = sorted(path.stem for path in BUNDLED.glob("*.npz") if not path.stem.endswith(".splits"))
        if name not in known:
            raise InputError(f"no bundled data set '{one_line(name, 40)}'; there is: {', '.join(known)}")
        return Spec(BUNDLED / f"{name}.npz", f"bundled:{name}", part if at else None)
    if _exists(whole) or "@" not in whole:
        return Spec(Path(whole), one_line(Path(whole).name), None)
    cuts = [match.start() for match in re.finditer("@", whole)]
    cut = next((at for at in reversed(cuts) if _exists(whole[:at])), cuts[0])
    path = Path(whole[:cut])
    return Spec(path, one_line(path.name), whole[cut + 1 :])


def _exists(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # too long, or with a NUL character: no file
        return False


def select(spec: Spec, n_frames: int) -> IntArray:
    """Indices of the frames that the spec means, out of `n_frames`."""
    everything = np.arange(n_frames, dtype=np.int64)
    if spec.split is None:
        return everything
    if re.fullmatch(r"[+-]?\d+", spec.split):
        return _inside(np.array([_int(spec.split)], dtype=np.int64), spec, n_frames)
    if match := _RANGE.fullmatch(spec.split):
        start, stop, step = (_int(word) if word else None for word in match.groups())
        if step == 0:
            raise InputError(f"{spec.name}: a step of 0 never ends; leave it out or take 1")
        chosen = everything[start:stop:step]
        if not chosen.size:
            raise InputError(f"{spec.name}: the range holds none of the {counted(n_frames, 'frame')}, numbered from 0")
        return chosen
    return _inside(_named(spec), spec, n_frames)


def _int(word: str) -> int:
    return max(-(2**62), min(2**62, int(word[:30])))


def _inside(indices: IntArray, spec: Spec, n_frames: int) -> IntArray:
    outside = indices[(indices < -n_frames) | (indices >= n_frames)]
    if outside.size:
        raise InputError(f"{spec.name}: no frame {outside[0]}; there are {n_frames}, numbered from 0")
    return np.where(indices < 0, indices + n_frames, indices)


def _named(spec: Spec) -> IntArray:
    """The split of this name from the companion file, or `splitfile:name`."""
    assert spec.split is not None
    explicit, colon, name = spec.split.rpartition(":")
    if colon:
        beside = spec.path.parent / explicit
        if "@" in explicit and not _exists(explicit) and not _exists(str(beside)):
            raise InputError(f"{spec.name}: a part of a part cannot be named; give one range or one split after the @")
        candidates = [beside if _exists(str(beside)) and not _exists(explicit) else Path(explicit)]
    else:
        stem = bare_stem(spec.path)
        candidates = [spec.path.parent / f"{stem}.splits{ending}" for ending in (".npz", ".json")]
        if stem.startswith("rmd17_"):
            candidates.append(spec.path.parent / f"splits_{stem.removeprefix('rmd17_')}.npz")
        candidates = [path for path in candidates if _exists(str(path))]
        if not candidates:
            raise InputError(
                f"{spec.name}: no split file beside {spec.file}; give a range such as 0:500, or save {stem}.splits.npz"
            )
    splits = load_splits(candidates[0])
    if name not in splits:
        known = one_line(", ".join(splits)) or "none"
        raise InputError(f"{spec.name}: no split '{one_line(name, 40)}' in {candidates[0].name}; there are: {known}")
    return splits[name]
