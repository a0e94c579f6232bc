"""Do the tests notice when the code is wrong?  Small changes to the code, one at a time, each of which a test should
fail for.

    python -m tests.mutants --limit 150       changes chosen at random, and the deliberate faults
    python -m tests.mutants --faults-only

`mutate` makes the changes, `faults` has the deliberate ones and says which tests to run, `trials` runs them.
"""
