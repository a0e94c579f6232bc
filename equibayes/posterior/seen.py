"""Which frames of a data set a posterior has learned from."""

from collections.abc import Collection

from equibayes.data.dataset import Dataset
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior
from equibayes.posterior.marks import frame_mark


def marks_of(posterior: Posterior) -> set[str]:
    """The marks of its training frames; empty for files that do not tell."""
    return set(posterior.data.get("frame_marks", ()))


def unseen(learned: Collection[str], data: Dataset, otherwise: str = "") -> tuple[Dataset, str]:
    """The frames of a data set that were not learned from, and a note about those left out.

    learned    marks of the training frames
    otherwise  a further remedy, where all of them were learned from
    """
    known, fresh = split_known(learned, data)
    if not known:
        return data, ""
    if not fresh:
        raise InputError(
            f"{data.name}: these are frames that the posterior learned from, where its errors are smaller than "
            "elsewhere; give others, or the whole set that it was sampled from, whose held-back frames are then used"
            + otherwise
        )
    learned_from = f"the posterior learned from {len(known)} of these frames"
    return fresh, f"{learned_from}; the other {len(fresh)} are used"


def split_known(learned: Collection[str], data: Dataset) -> tuple[Dataset, Dataset]:
    """The frames that were learned from, and the others."""
    known = [frame_mark(structure) in learned for structure in data]
    own, others = ([i for i, each in enumerate(known) if each == which] for which in (True, False))
    return data.subset(own), data.subset(others)
