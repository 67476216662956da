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

# Where the machine forbids it, every process of a test or benchmark would compile all modules anew: seconds of CPU each.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: env run test faults faults-planted mutants test-differential test-long test-node check build chart image release bench bench-variants bench-kinds bench-at-rest bench-live bench-e2e bench-grouping bench-memory bench-overload conformance docs local-up local-down clean site

# The environment, with the `kai` command in it. Re-made when the dependencies change.
env: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("pykai needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv -c constraints.txt
	@$(BIN)/uv pip install -q --compile-bytecode --python $(BIN)/python -e '.[dev,report]' -c constraints.txt
	@$(BIN)/python -m compileall -q src
	@touch $@

run: env
	@$(BIN)/kai simulate examples/quickstart

# Lint, types and import contracts first; then two halves side by side: what runs on a real control plane, and the rest.
test: check
	@$(BIN)/python -m tests

# Random histories of the whole product with faults, by seed: make faults SEEDS=100 FIRST=1. One process per seed, on all
# processors; KAI_FAULTS_WORKERS=1 on one. A failing seed alone (kai simulate --faults SEED) is shrunk and told as a story.
SEEDS ?= 2000
FIRST ?= 1
faults: env
	@$(BIN)/kai simulate --faults $(FIRST)-$$(($(FIRST) + $(SEEDS) - 1))

# After how many seeds the campaign finds a bug of each class that is planted in the product.
faults-planted: env
	@$(BIN)/python -m tests.faults.planted

# Changes of the product at random, one at a time: does a test notice? MUTANTS=60 so many.
MUTANTS ?= 60
mutants: env
	@$(BIN)/python -m tests.mutants $(MUTANTS) $(ARGS)

# Random pods and nodes on a real control plane, kube-scheduler as judge of which nodes are feasible and preferred:
# so many clusters, with so many pods each.
CLUSTERS ?= 20
PROBES ?= 5
test-differential: env
	CLUSTERS=$(CLUSTERS) PROBES=$(PROBES) $(BIN)/python -m pytest -q tests/integration/test_differential.py

# What-if beside applying the manifest, on so many random states of a real control plane, and its audit log.
STATES ?= 20
.PHONY: test-ask
test-ask: env
	STATES=$(STATES) $(BIN)/python -m pytest -q tests/integration/test_ask.py

# Workloads under the real operators of other projects, each built first (minutes): make test-operators OPERATORS=jobset,lws
OPERATORS ?=
.PHONY: test-operators
test-operators: env
	OPERATORS=$(OPERATORS) $(BIN)/python -m pytest -v tests/integration/test_operators.py

# The essential integration tests on other releases of Kubernetes, each built first (minutes) and kept in the cache.
VERSIONS ?= v1.33.13 v1.34.4 v1.35.4 v1.36.3
ESSENTIAL := mission workloads binder scheduler install
.PHONY: test-versions
test-versions: env
	@for version in $(VERSIONS); do echo "Kubernetes $$version"; \
	  KAI_KUBERNETES=$$version $(BIN)/python -m pytest -q $(ESSENTIAL:%=tests/integration/test_%.py) || exit 1; \
	done

# What can fail once in many times, often: shared devices and leaders, while components are killed.
test-long: env
	KAI_TEST_ROUNDS=20 $(BIN)/python -m pytest tests/integration/test_shared_devices.py tests/integration/test_failover.py

# A real node (kubelet, containerd, runc, a fake GPU) in namespaces of its own; Linux and root. Elsewhere it says why not.
test-node: image
	@$(BIN)/python -m tests.node $(ARGS)

# The dashboard in headless Chromium (apt-get install chromium chromium-driver), on a real control plane; one minute.
.PHONY: test-browser
test-browser: env
	$(BIN)/python -m pytest -v tests/browser

check: env
	$(BIN)/ruff check src tests bench charts docs deploy
	$(BIN)/ruff format --check src tests bench charts docs deploy
	$(BIN)/mypy
	$(BIN)/lint-imports

# The wheel (the same bytes for the same sources), its bill of materials and the packaged chart, in dist/
build: env chart
	@SOURCE_DATE_EPOCH=1577836800 $(BIN)/uv build -q --wheel --out-dir dist
	@$(BIN)/python -m deploy.sbom dist/pykai-$(VERSION).cdx.json
	@$(BIN)/python -m deploy.chart charts/kai-scheduler dist
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

# All files of a release in dist/, with notes from the changelog and checksums: wheel, sdist, bill of materials, chart, images.
# The chart is signed where a key of gpg's keyring is named: make release KEY="Jane Doe"
KEY ?=
release: build
	@SOURCE_DATE_EPOCH=1577836800 $(BIN)/uv build -q --sdist --out-dir dist
	@$(BIN)/python -m deploy.image dist/pykai-$(VERSION)-py3-none-any.whl dist/images.tar $(REGISTRY)
	@test -z "$(KEY)" || $(BIN)/python -m deploy.chart charts/kai-scheduler dist "$(KEY)"
	@$(BIN)/python -m deploy.release $(VERSION) dist

conformance: env
	@$(BIN)/python -m tests.conformance.runner $(CASES)

# CPU and memory of scheduling cycles beside KAI's; `make bench ARGS=--quick` takes a minute.
bench: $(BENCH)/.ready
	@$(BENCH)/bin/python -m bench.run $(ARGS)

# CPU, simulations and decisions of cycles in full, unequal, mixed clusters beside KAI's, at 96, 320 and 1,000 nodes;
# `make bench-variants ARGS="--nodes 96 --only unbalanced,elastic"`; `ARGS=--docs` writes the section of docs/performance.md.
bench-variants: env
	@$(BIN)/python -m bench.variants $(ARGS)

# More kinds of clusters, for which there are no figures of KAI (bench/kinds.py); with the same options.
bench-kinds: env
	@$(BIN)/python -m bench.variants --more $(ARGS)

# The same clusters at 96 nodes, played to rest; `ARGS="--only elastic --seconds 600"`, `ARGS=--docs` as above.
bench-at-rest: env
	@$(BIN)/python -m bench.at_rest $(ARGS)

# A day of a published cluster under pykai, plain gang scheduling and FIFO; `ARGS="--nodes 24"`, `ARGS=--docs` writes the
# section and plot of docs/scale.md.
.PHONY: bench-day
bench-day: env
	@$(BIN)/python -m bench.day $(ARGS)

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

# CPU time of `kai explain` and of the dashboard's pages with 5,000 nodes and 40,000 pods.
.PHONY: bench-questions
bench-questions: env
	@$(BIN)/python -m bench.questions

# Memory and idle CPU of a live scheduler with 5,000 nodes and 20,000 pods; takes minutes to fill the API server.
bench-memory: $(BENCH)/.ready
	@$(BENCH)/bin/python -m bench.memory $(ARGS)

# CPU time of each component from its start until it is ready, on an empty cluster; `make bench-start ARGS="--rounds 3"`.
.PHONY: bench-start
bench-start: $(BENCH)/.ready
	@$(BENCH)/bin/python -m bench.start $(ARGS)

# 20,000 pods at once and an API server that is away for a minute, twice, in virtual time: does memory come back?
bench-overload: env
	@$(BIN)/python -m bench.overload $(ARGS)

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
