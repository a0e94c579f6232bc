"""Options for the device, shared by several verbs."""

import argparse
import os

from equibayes.allocator import keep_freed_memory
from equibayes.engine.select import ENGINES, VARIABLE, wanted
from equibayes.errors import InputError


def add_device_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: cuda if there is one")
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
    import torch

    device, threads = arguments.device, arguments.threads
    choose_engine(arguments)
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: no GPU is visible to PyTorch here; use --device cpu")
    if threads is not None:
        if threads < 1:
            raise InputError(f"--threads {threads}: must be at least 1")
        torch.set_num_threads(threads)
    keep_freed_memory()
    return device or ("cuda" if torch.cuda.is_available() else "cpu")
