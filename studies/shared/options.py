"""Command-line options that several studies share."""

import argparse
from collections.abc import Callable
from pathlib import Path

from equibayes.errors import InputError
from equibayes.run.interrupt import Interrupted


def parser_of(documentation: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the docstring of the study."""
    return argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter)


def add_device(parser: argparse.ArgumentParser, default: str = "cpu") -> None:
    parser.add_argument("--device", default=default, help="cpu or cuda (default: %(default)s)")


def add_commit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--commit", help="commit of the code, where git is not available")


def add_quick(parser: argparse.ArgumentParser, duration: str) -> None:
    parser.add_argument("--quick", action="store_true", help=f"{duration}: shows that the study runs, nothing else")


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="sampler settings to change: burn_in.steps=12000"
    )


def add_folders(parser: argparse.ArgumentParser, name: str, *, folder: str = "--folder", defaults: bool = True) -> None:
    """--folder for posteriors and unfinished runs, --output for the results; both required without `defaults`."""
    places = {folder: ("posteriors and unfinished runs", "build"), "--output": ("results", "results")}
    for option, (content, place) in places.items():
        default = Path(place) / name if defaults else None
        words = f"folder for {content}" + (" (default: %(default)s)" if defaults else "")
        parser.add_argument(option, type=Path, default=default, required=not defaults, help=words)


def start(main: Callable[[], int | None]) -> None:
    """Run a study; wrong input and an interrupted run end it with one line."""
    try:
        raise SystemExit(main())
    except InputError as error:
        raise SystemExit(f"error: {error}") from None
    except Interrupted as stop:
        raise SystemExit(f"{stop}; repeat the command to continue") from None
