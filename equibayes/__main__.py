"""The program `equibayes`, also as `python -m equibayes`."""

import sys


def main() -> int:
    """Run the program; Ctrl-C during the imports, which take seconds, ends it quietly."""
    try:
        from equibayes.cli.main import main as program
    except KeyboardInterrupt:
        return 130
    return program()


if __name__ == "__main__":
    sys.exit(main())
