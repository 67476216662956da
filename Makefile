# Everything a person types. `make run` shows the main job, `make test` proves it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CASES  ?= ../shared/conformance
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
REGISTRY ?= registry/local/kai-scheduler
ARGS   ?=
# Benchmarks on another interpreter: a path, a name, or `image`, which is optimised as that of the image (bench/interpreter.py).
PYTHON_BENCH ?=
BENCH  := $(if $(PYTHON_BENCH),.venv-bench,$(VENV))

.PHONY: env run test test-long check build chart image bench bench-variants bench-live bench-e2e bench-grouping bench-memory conformance docs local-up local-down clean site

# The environment, with the `kai` command in it. Re-made when the dependencies change.
env: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("pykai needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv -c constraints.txt
	@$(BIN)/uv pip install -q --python $(BIN)/python -e '.[dev,report]' -c constraints.txt
	@touch $@

run: env
	@$(BIN)/kai simulate examples/quickstart

# Lint, types and import contracts first; then two halves side by side: what runs on a real control plane, and the rest.
test: check
	@$(BIN)/python -m tests

# What can fail once in many times, often: shared devices and leaders, while components are killed.
test-long: env
	KAI_TEST_ROUNDS=20 $(BIN)/python -m pytest tests/integration/test_shared_devices.py tests/integration/test_failover.py

check: env
	$(BIN)/ruff check src tests bench charts docs deploy
	$(BIN)/ruff format --check src tests bench charts docs deploy
	$(BIN)/mypy
	$(BIN)/lint-imports

# The wheel (the same bytes for the same sources), its bill of materials and the packaged chart, in dist/
build: env chart
	@SOURCE_DATE_EPOCH=1577836800 $(BIN)/uv build -q --wheel --out-dir dist
	@$(BIN)/python -m deploy.sbom dist/pykai-$(VERSION).cdx.json
	@$(BIN)/helm package -d dist charts/kai-scheduler
	@ls dist

# What the chart takes from the code: definitions, schema of values, roles.
chart: env
	@$(BIN)/python -m charts.generate
	@$(BIN)/helm lint --strict --quiet charts/kai-scheduler

# Three images by the Dockerfile; where no container engine answers, assembled from the wheel in dist/images.tar.
image: build
	@for engine in docker podman; do \
	  $$engine info >/dev/null 2>&1 || continue; \
	  $$engine build -t $(REGISTRY)/pykai:$(VERSION) . \
	  && $$engine build -t $(REGISTRY)/resource-reservation:$(VERSION) --target resource-reservation . \
	  && $$engine build -t $(REGISTRY)/scaling-pod:$(VERSION) --target scaling-pod .; \
	  exit; \
	done; \
	echo "no container engine answers: assembling dist/images.tar"; \
	$(BIN)/python -m deploy.image dist/pykai-$(VERSION)-py3-none-any.whl dist/images.tar $(REGISTRY)

conformance: env
	@$(BIN)/python -m tests.conformance.runner $(CASES)

# CPU and memory of scheduling cycles beside KAI's; `make bench ARGS=--quick` takes a minute.
bench: $(BENCH)/.ready
	@$(BENCH)/bin/python -m bench.run $(ARGS)

# CPU, simulations and decisions of cycles in full, unequal, mixed clusters beside KAI's, at 96, 320 and 1,000 nodes;
# `make bench-variants ARGS="--nodes 96 --only unbalanced,elastic"`; `ARGS=--docs` writes the section of docs/performance.md.
bench-variants: env
	@$(BIN)/python -m bench.variants $(ARGS)

# CPU of a live scheduler's cycle after a change, in a full cluster, step by step;
# `make bench-live ARGS="--nodes 1000"`; `ARGS=--docs` as above.
bench-live: env
	@$(BIN)/python -m bench.live_cycle $(ARGS)

# Pods per second on a real control plane, beside kube-scheduler; `make bench-e2e ARGS="--pods 200 --nodes 100"`;
# `ARGS=--docs` writes the section of docs/performance.md, here and below.
bench-e2e: $(BENCH)/.ready
	@$(BENCH)/bin/python -m bench.e2e $(ARGS)

# Writes and time of grouping 10,000 pods of 1,000 Jobs on a real API server; `make bench-grouping ARGS="--jobs 100"`.
bench-grouping: $(BENCH)/.ready
	@$(BENCH)/bin/python -m bench.grouping $(ARGS)

# Memory and idle CPU of a live scheduler with 5,000 nodes and 20,000 pods; takes minutes to fill the API server.
bench-memory: $(BENCH)/.ready
	@$(BENCH)/bin/python -m bench.memory $(ARGS)

.venv-bench/.ready: $(VENV)/.ready
	@$(BIN)/python -m bench.interpreter $(PYTHON_BENCH) .venv-bench
	@touch $@

# The parts of the documentation that are generated from the code.
docs: env
	@$(BIN)/python -m docs.generate

# The documentation site with search, in build/site; links are checked strictly, nothing loads from outside.
site: docs
	@$(BIN)/uv pip install -q --python $(BIN)/python -e '.[docs]' -c constraints.txt
	@$(BIN)/python -m docs.generate.site write build/site-source
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@$(BIN)/python -m docs.generate.site check build/site

# A real control plane with hollow GPU nodes on this machine; `make local-up ARGS="--nodes 4 --gpus 2"`.
local-up: env
	@$(BIN)/kai local up $(ARGS)

local-down: env
	@$(BIN)/kai local down $(ARGS)

clean:
	rm -rf $(VENV) .venv-bench build/bench .pytest_cache .mypy_cache .ruff_cache
