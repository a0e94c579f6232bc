"""Options for the device, shared by several verbs."""

import argparse

from equibayes.allocator import keep_freed_memory
from equibayes.device import choose_device
from equibayes.errors import InputError

MOST_THREADS = 4096


def add_device_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: cuda if there is one")
    parser.add_argument("--threads", type=int, metavar="n", help="CPU threads (default: all cores)")


def chosen_device(arguments: argparse.Namespace) -> str:
    """The device to use; an `InputError` if it is not there."""
    import torch

    threads = arguments.threads
    device = choose_device(arguments.device)
    if threads is not None:
        if not 1 <= threads <= MOST_THREADS:
            limit = "at least 1" if threads < 1 else f"at most {MOST_THREADS}"
            raise InputError(f"--threads {threads}: must be {limit}")
        torch.set_num_threads(threads)
    keep_freed_memory()
    return str(device)
