"""Options for the device, shared by several verbs."""

import argparse
import os

from equibayes.allocator import keep_freed_memory
from equibayes.device import choose_device
from equibayes.engine.select import ENGINES, VARIABLE, wanted
from equibayes.errors import InputError

MOST_THREADS = 4096


def add_device_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: cuda if there is one")
    add_engine_options(parser)


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    engine = "what computes the network; default: the fastest that this machine can run"
    parser.add_argument("--engine", choices=ENGINES, help=engine)
    parser.add_argument("--threads", type=int, metavar="n", help="CPU threads (default: all cores)")


def choose_engine(arguments: argparse.Namespace) -> None:
    """Set the environment variable, so that the processes that this one starts have it as well, and check it."""
    if arguments.engine is not None:
        os.environ[VARIABLE] = arguments.engine
    wanted()


def chosen_device(arguments: argparse.Namespace) -> str:
    """The device to use; an `InputError` if it is not there."""
    use_engine(arguments)
    return str(choose_device(arguments.device))


def use_engine(arguments: argparse.Namespace) -> None:
    """Engine and threads as the options say."""
    import torch

    threads = arguments.threads
    choose_engine(arguments)
    if threads is not None:
        if not 1 <= threads <= MOST_THREADS:
            limit = "at least 1" if threads < 1 else f"at most {MOST_THREADS}"
            raise InputError(f"--threads {threads}: must be {limit}")
        torch.set_num_threads(threads)
    keep_freed_memory()
