"""Which frames of a data set a posterior has learned from."""

from collections.abc import Collection

from equibayes.data.dataset import Dataset
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior
from equibayes.posterior.sample import frame_mark


def marks_of(posterior: Posterior) -> set[str]:
    """The marks of its training frames; empty for files that do not tell."""
    return set(posterior.data.get("frame_marks", ()))


def unseen(learned: Collection[str], data: Dataset, otherwise: str = "") -> tuple[Dataset, str]:
    """The frames of a data set that were not learned from, and a note about those left out.

    learned    marks of the training frames
    otherwise  a further remedy, where all of them were learned from
    """
    fresh = [i for i, structure in enumerate(data) if frame_mark(structure) not in learned]
    if len(fresh) == len(data):
        return data, ""
    if not fresh:
        raise InputError(
            f"{data.name}: these are frames that the posterior learned from, where its errors are smaller than "
            "elsewhere; give others, or the whole set that it was sampled from, whose held-back frames are then used"
            + otherwise
        )
    learned_from = f"the posterior learned from {len(data) - len(fresh)} of these frames"
    return data.subset(fresh), f"{learned_from}; the other {len(fresh)} are used"
