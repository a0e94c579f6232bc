"""Studies behind the numbers in `results/`.  Not installed with equibayes: run them from the root of the repository.

    python -m studies.rmd17 --help

README.md lists them all.
"""
