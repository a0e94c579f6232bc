"""Options for the device, shared by several verbs."""

import argparse

from equibayes.allocator import keep_freed_memory
from equibayes.errors import InputError

MOST_THREADS = 4096


def add_device_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: cuda if there is one")
    parser.add_argument("--threads", type=int, metavar="n", help="CPU threads (default: all cores)")


def chosen_device(arguments: argparse.Namespace) -> str:
    """The device to use; an `InputError` if it is not there."""
    import torch

    device, threads = arguments.device, arguments.threads
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: no GPU is visible to PyTorch here; use --device cpu")
    if threads is not None:
        if not 1 <= threads <= MOST_THREADS:
            limit = "at least 1" if threads < 1 else f"at most {MOST_THREADS}"
            raise InputError(f"--threads {threads}: must be {limit}")
        torch.set_num_threads(threads)
    keep_freed_memory()
    return device or ("cuda" if torch.cuda.is_available() else "cpu")
