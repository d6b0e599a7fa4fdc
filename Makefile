# Everything a fresh machine needs is Python 3.11 or newer with venv.
# One virtual environment per interpreter and set of versions: `make` uses .venv, `make PYTHON=python3.13` .venv-3.13,
# and with CONSTRAINTS=constraints-latest.txt .venv-3.13-latest. With CONSTRAINTS= pip takes the newest versions.
DEFAULT_PYTHON := python3
PYTHON ?= $(DEFAULT_PYTHON)
CONSTRAINTS ?= constraints.txt
VERSION :=
ifneq ($(PYTHON),$(DEFAULT_PYTHON))
VERSION := $(shell $(PYTHON) -c 'import sys; print("-%d.%d" % sys.version_info[:2])')
ifeq ($(VERSION),)
$(error PYTHON=$(PYTHON) does not run; try the full path of an interpreter, such as PYTHON=/usr/bin/python3.13)
endif
endif
VENV := .venv$(VERSION)$(if $(CONSTRAINTS),$(CONSTRAINTS:constraints%.txt=%),-unpinned)
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := .venv-peers
PEERS_READY := $(PEERS)/.ready

# What depends most on the versions of Python and JAX: update rules, both loops, the Python API, a sweep, checkpoints,
# how programs are compiled and kept.
SELECTION := $(addprefix tests/,agents/test_oracle.py core/test_rng.py training/test_program.py training/test_host_lanes.py api/test_front.py study/test_sweep.py training/test_checkpoint.py core/test_xla.py core/test_program_cache.py)

.PHONY: setup demo bench test test-all test-selection test-latest lint clean

setup: $(READY)

$(READY): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit("greedyac needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(addprefix --constraint ,$(CONSTRAINTS)) --editable '.[dev]'
	@touch $@

demo: setup
	$(BIN)/greedyac demo

# Speeds, ours and other libraries'; fails if ours fell (docs/speed.md). Without those libraries it measures only ours.
bench: setup
	@$(MAKE) --no-print-directory $(PEERS_READY) || echo "make: the other libraries could not be installed: they will be told as not run"
	$(BIN)/greedyac bench $$(test -x $(PEERS)/bin/python && echo --peers) --out runs/bench --compare benchmarks/ratios.json

$(PEERS_READY): src/greedyac/peers/requirements.txt
	@echo "setting up $(PEERS) with the libraries to compare with"
	@$(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement $<
	@touch $@

test: setup lint
	$(BIN)/pytest -n 2 --dist loadfile -m 'not slow'

test-all: setup lint
	$(BIN)/pytest -n 2 --dist loadfile

test-selection: setup
	@$(BIN)/python -c 'import platform, importlib.metadata as m; print("Python", platform.python_version(), "with", *(f"{name} {m.version(name)}" for name in ("jax", "jaxlib", "numpy", "gymnasium", "polars")))'
	$(BIN)/pytest -n 2 --dist loadfile -m 'not slow' $(SELECTION)

# By hand, before a release: all tests with the newest versions that pip finds, installed afresh.
test-latest:
	rm -rf .venv*-unpinned
	$(MAKE) test-all CONSTRAINTS=

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

clean:
	rm -rf .venv* .cache dist .mypy_cache .ruff_cache .pytest_cache
