# Everything a fresh machine needs is Python 3.11 or newer with venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := .venv-peers
PEERS_READY := $(PEERS)/.ready

.PHONY: setup demo bench test test-all lint clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("greedyac needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: setup
	$(BIN)/greedyac demo

# Ratios of speeds, ours and other libraries'; fails if one fell. Without those libraries it measures only ours.
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

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) $(PEERS) dist .mypy_cache .ruff_cache .pytest_cache
