"""The program `equibayes`, also as `python -m equibayes`."""

import sys


def main() -> int:
    """Importing takes seconds, in which somebody may already have thought better of it."""
    try:
        from equibayes.cli.main import main as program
    except KeyboardInterrupt:
        return 130
    return program()


if __name__ == "__main__":
    sys.exit(main())
