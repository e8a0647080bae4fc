# Each target sets up what it needs: a virtual environment in .venv and the packages of pyproject.toml.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two processes of tests, each with one thread: more only wait for each other on two cores. Compiled
# modules are kept (an empty PYTHONDONTWRITEBYTECODE is off): tests start hundreds of processes.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
  $(BIN)/python -m pytest -n 2
.DEFAULT_GOAL := help
.SECONDEXPANSION:

# The site needs the library with all extras, and its generator; it shares the environment of the tests if there is one.
DOCS = $(if $(wildcard $(VENV)/ready),$(VENV),$(VENV)-docs)

.PHONY: help demo paper test types tests test-all docs bench mutate format clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# The demonstration needs to learn and to serve; the tests need much more.
$(VENV)/demo: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "latentbandits needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[experiments,serving]'
	@touch $@

$(VENV)/ready: $(VENV)/demo related/pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[all]' --editable ./related --group dev
	@touch $@

$(VENV)/bench: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --group bench
	@touch $@

$(VENV)-docs/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(VENV)-docs/bin/python -m pip install --quiet --editable '.[all]' --editable ./related --group docs
	@touch $@

demo: $(VENV)/demo  ## from a log to a service that relearns, about a minute; KEEP=1 leaves it running
	$(BIN)/python -m examples.demo $(if $(KEEP),--keep)

paper: $(VENV)/demo  ## the paper's synthetic experiment with all its claims, about a minute
	$(BIN)/latentbandits reproduce synthetic --out out/synthetic

test: $(VENV)/ready  ## format, lint, types, import contract, and all tests but the slow ones
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --no-print-directory --jobs 2 types tests

# mypy is one process for half a minute in a fresh clone: it runs beside the doctests, which are one
# process too, because each process imports every module, and beside the first tests.
types: $(VENV)/ready
	$(BIN)/mypy
	$(BIN)/lint-imports

tests: $(VENV)/ready
	$(PYTEST) -n 0 --doctest-modules -m "not slow" src related/src evidence
	$(PYTEST) -m "not slow" --durations=25 tests related/tests

test-all: test docs  ## and the site, browsers, Spark, faults, kills, packages and slow statistics
	$(PYTEST) --dist worksteal -m slow --durations=40 tests related/tests

docs: $$(DOCS)/ready  ## the documentation site, built strictly and without a network: out/site/index.html
	$(DOCS)/bin/python -m tools.site --out out/site

bench: $(VENV)/bench  ## speed, side by side with the libraries people would pick instead
	$(BIN)/python -m benchmarks

mutate: $(VENV)/ready  ## mutation score of models, beliefs and policies, by mutmut; about an hour, resumable
	$(BIN)/python -m pip install --quiet --group mutation
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.mutation --mutants 500 --seed 1

format: $(VENV)/ready  ## put the code in its format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove the environment and all that was made
	rm -rf $(VENV) $(VENV)-docs out .mypy_cache .ruff_cache .pytest_cache .hypothesis
