# Two commands do everything on a fresh machine with Python >= 3.11, pip and make:  make demo,  make test
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RUN    := $(VENV)/.installed
DEV    := $(VENV)/.installed-dev
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-all lint bench mutants docs clean

demo: $(RUN)  ## the main job on bundled real data, on a CPU
	$(BIN)/python examples/demo.py --output demo-output

test: lint  ## lint, types, layers and all tests that take less than a few minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-all: lint  ## also the longer checks
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(DEV)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(DEV)  ## speed, as ratios in one run; results go to results/speed
	$(BIN)/python benchmarks/network.py
	$(BIN)/python benchmarks/native.py
	$(BIN)/python benchmarks/large.py
	$(BIN)/python benchmarks/predict.py
	$(BIN)/python benchmarks/md.py
	$(BIN)/python benchmarks/cluster.py
	$(BIN)/python benchmarks/lammps_md.py
	$(BIN)/python benchmarks/lammps_ranks.py

mutants: $(DEV)  ## small changes to the code, which the tests should notice; the report goes to results/mutants
	$(BIN)/python -m tests.mutants --limit $(or $(LIMIT),100)

docs: $(RUN)  ## the documentation as a site, in docs/_build
	$(PIP) --editable ".[docs]"
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build
	@echo "open docs/_build/index.html"

clean:
	rm -rf $(VENV) demo-output

# The environment is made once; a second run starts at once.  torch comes first and alone, so that nothing else can choose its build.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "equibayes needs Python >= 3.11; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUN): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing (once; torch is large) ..."
	$(PIP) torch
	$(PIP) --editable .
	@command -v g++ >/dev/null || command -v clang++ >/dev/null || $(PIP) --editable ".[compiler]"  # for the CPU engine
	@touch $@

$(DEV): $(RUN)
	$(PIP) --editable ".[dev]"
	@touch $@
