"""`python -m equibayes` is the program `equibayes`."""

import sys

from equibayes.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
