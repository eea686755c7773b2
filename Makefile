# `make demo` and `make test` are all a new user needs; each sets up what it needs, once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FRAMEWORKS_READY := $(VENV)/.ready-frameworks
BENCH_READY := $(VENV)/.ready-bench
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: demo test test-cluster test-frameworks check bench clean

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Paceline into $(VENV)"
	@$(INSTALL) --editable '.[nmt,export,images,dev]'
	@touch $@

$(BENCH_READY): $(READY)
	@$(INSTALL) --editable '.[bench]'
	@touch $@

$(FRAMEWORKS_READY): $(READY)
	@$(INSTALL) --editable '.[frameworks]'
	@touch $@

demo: $(READY)
	@$(BIN)/python -m paceline.tasks.nmt.demo

test: $(READY)
	$(BIN)/python -m pytest -m "not cluster" -n 2 --dist loadfile

test-cluster: $(READY)
	@tools/cluster-packages
	$(BIN)/python -m pytest -m cluster

test-frameworks: $(FRAMEWORKS_READY)
	$(BIN)/python -m pytest -m frameworks

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(BENCH_READY)
	$(BIN)/python -m benchmarks.cifar10
	$(BIN)/python -m benchmarks.input
	$(BIN)/python -m benchmarks.imagenet
	$(BIN)/python -m benchmarks.kernels
	$(BIN)/python -m benchmarks.prepare_text
	$(BIN)/python -m benchmarks.nmt
	$(BIN)/python -m benchmarks.report
	$(BIN)/python -m benchmarks.waiting
	$(BIN)/python -m benchmarks.start
	$(BIN)/python -m benchmarks.observe

clean:
	rm -rf $(VENV) build dist src/*.egg-info
