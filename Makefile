# `make demo` and `make test` are all a new user needs; each sets up what it needs, once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ENGINES := .venv-engines
FRAMEWORKS_READY := $(VENV)/.ready-frameworks
BENCH_READY := $(VENV)/.ready-bench
VIEWER_READY := $(VENV)/.ready-viewer
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: demo test test-gpu test-cluster test-engines test-frameworks check bench clean

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

$(VIEWER_READY): $(READY)
	@$(INSTALL) --editable '.[viewer]'
	@touch $@

demo: $(READY)
	@$(BIN)/python -m paceline.tasks.nmt.demo

test: $(READY)
	$(BIN)/python -m pytest -m "not cluster and not engines and not frameworks" -n 2 --dist loadfile --durations 15

test-gpu: $(READY)
	PACELINE_TEST_GPU=1 CUBLAS_WORKSPACE_CONFIG=:4096:8 $(BIN)/python -m pytest -m gpu tests/gpu

test-cluster: $(VIEWER_READY)
	@tools/cluster-packages
	$(BIN)/python -m pytest -m cluster -n 2 --dist loadfile --durations 15

test-frameworks: $(FRAMEWORKS_READY)
	$(BIN)/python -m pytest -m frameworks --durations 5

# Job files and cloud calls against the engines' own schemas, in an environment without torch.
$(ENGINES)/.ready: tests/engines/requirements.txt
	@test -x $(ENGINES)/bin/python || $(PYTHON) -m venv $(ENGINES)
	@echo "installing the engines' schemas into $(ENGINES)"
	@$(ENGINES)/bin/python -m pip install --quiet --no-deps --requirement $<
	@touch $@

test-engines: $(ENGINES)/.ready
	PYTHONPATH=src $(ENGINES)/bin/python -m pytest --confcutdir=tests/engines \
		-o filterwarnings=default -m engines tests/engines

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
	$(BIN)/python -m benchmarks.logs
	$(BIN)/python -m benchmarks.waiting
	$(BIN)/python -m benchmarks.start
	$(BIN)/python -m benchmarks.observe

clean:
	rm -rf $(VENV) $(ENGINES) build dist src/*.egg-info
