# `make demo` and `make test` are all a new user needs; each sets up what it needs, once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.ready-bench
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: demo test test-cluster check bench clean

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Paceline into $(VENV)"
	@$(INSTALL) --editable '.[nmt,export,images,dev]'
	@touch $@

$(BENCH_READY): $(READY)
	@$(INSTALL) --editable '.[bench]'
	@touch $@

demo: $(READY)
	@$(BIN)/python -m paceline.demo

test: $(READY)
	$(BIN)/python -m pytest -m "not cluster"

test-cluster: $(READY)
	@tools/cluster-packages
	$(BIN)/python -m pytest -m cluster

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(BENCH_READY)
	$(BIN)/python benchmarks/cifar10.py
	$(BIN)/python benchmarks/input.py
	$(BIN)/python benchmarks/imagenet.py
	$(BIN)/python benchmarks/prepare_text.py
	$(BIN)/python benchmarks/nmt.py
	$(BIN)/python benchmarks/report.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info
