"""Keep the memory that a step frees for the next step, instead of giving it back to the system in between.

A step on a CPU takes and frees hundreds of MiB.  glibc returns freed memory at the end of its heap to the system, and every page must
then be mapped and zeroed again: with 8 chains of the paper's network that is a sixth of the time.
"""

import ctypes
import sys

# parameters of mallopt(3)
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 32 * 2**20  # glibc accepts no more; larger blocks always come from the system


def keep_freed_memory() -> bool:
    """Tell glibc to hold on to freed memory until the process ends; False where there is no glibc, and nothing changes."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    accepted = mallopt(_TRIM_THRESHOLD, 2**31 - 1), mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    return accepted == (1, 1)
