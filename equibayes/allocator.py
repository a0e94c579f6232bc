"""Keep the memory freed by one step for the next, instead of returning it to the system.

A step on a CPU takes and frees hundreds of MiB.  glibc returns freed memory at the end of its heap to the system, and
every page must then be mapped and zeroed again: with 8 chains of the paper's network that is a sixth of the time.
Blocks above 32 MiB come from the system one by one unless that is forbidden; with thousands of atoms that is a third
of the time.  The price is unused memory between blocks, up to a third more.
"""

import ctypes
import sys

# parameters of mallopt(3)
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed memory until the process ends; False, without effect, where there is no glibc."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    accepted = mallopt(_TRIM_THRESHOLD, 2**31 - 1), mallopt(_MMAP_MAX, 0)
    return accepted == (1, 1)
