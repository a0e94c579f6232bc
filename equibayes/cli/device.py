"""The options that say where to compute, shared by the verbs that predict."""

import argparse

from equibayes.cli.sample import check_device


def add_device_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: cuda if there is one")
    parser.add_argument("--threads", type=int, metavar="n", help="CPU threads (default: all cores)")


def chosen_device(arguments: argparse.Namespace) -> str:
    """The device to use; an `InputError` if it is not there."""
    import torch

    check_device(arguments.device, arguments.threads)
    return arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
