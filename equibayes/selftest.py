"""``python -m equibayes.selftest``: every engine that this machine can run, against the float64 reference."""

import sys

from equibayes.engine.selftest import main

if __name__ == "__main__":
    sys.exit(main())
