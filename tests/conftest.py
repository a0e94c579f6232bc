"""Tests pin the reference, unless they or the environment name another engine.

EQUIBAYES_ENGINE=native python -m pytest tests/run tests/sampling      the same tests with the compiled engine
"""

import os

from equibayes.engine.select import VARIABLE

os.environ.setdefault(VARIABLE, "reference")
