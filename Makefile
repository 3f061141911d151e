# `make help` lists the targets. The first run of any of them sets everything up.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   := $(VENV)/.demo
SETUP  := $(VENV)/.installed
SEEDS  ?= 10000
TIMERS ?= 10000

.PHONY: help setup tools demo test check lint docs simulate bench bench-compare bench-peers bench-scale bench-analytics bench-console load faults soak release images test-debian check-release lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(SETUP)  ## virtual environment from hash-locked requirements, jars of the local broker and of Spark's Kafka source, Spark's classes

# What the service and its demo need, and nothing that tests alone do.
$(DEMO): release/analytics.lock release/demo.lock pyproject.toml retry/jars.lock
	@echo '== 1 of 4: an environment of Python in $(VENV)'
	$(PYTHON) -m venv $(VENV)
	@echo '== 2 of 4: packages, each with its hash: 0.8 GB on disk, of which PySpark has 470 MB; a minute or two'
	$(BIN)/python -m pip install --require-hashes --only-binary=:all: --no-binary=pyspark -r release/analytics.lock
	$(BIN)/python -m pip install --quiet --require-hashes --only-binary=:all: -r release/demo.lock
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps -e .
	$(BIN)/python -m compileall -q backoff retry
	@echo '== 3 of 4: 110 MB of jars, of the local broker and of Spark, once for this user; a minute without a word'
	$(BIN)/python -m retry.jars
	@echo "== 4 of 4: Spark's classes are read once, so that reports begin sooner: half a minute"
	-$(BIN)/python -m retry analytics prepare
	touch $@

$(SETUP): requirements.lock $(DEMO)
	@echo '== and packages of tests: 0.4 GB on disk'
	$(BIN)/python -m pip install --require-hashes --only-binary=:all: --no-binary=pyspark -r requirements.lock
	touch $@

# Without Go the tests of the chart skip, and without npm those with KafkaJS and in a browser; where CI is set they fail. The tag
# leaves out the clouds that promtool would look for targets in; what is not optimised is there a third sooner.
TOOLS := build/tools
NODE  := build/node
SCHEMA := build/grafana
RELEASE := build/release
BROWSER := build/browser
tools: $(if $(shell command -v go),$(TOOLS)/.installed)  ## helm, kubeconform, promtool for tests of the chart, where Go is; KafkaJS, Grafana's schema, Chromium, where npm is
tools: $(if $(shell command -v npm),$(NODE)/.installed $(SCHEMA)/.installed $(BROWSER)/.installed)
tools: $(RELEASE)/.installed

$(TOOLS)/.installed: tests/chart/tools/go.mod tests/chart/tools/go.sum
	cd $(<D) && CGO_ENABLED=0 GOBIN=$(abspath $(TOOLS)) go install -trimpath -ldflags=-s -gcflags='all=-N -l' -tags remove_all_sd tool
	touch $@

define NPM_CI
mkdir -p $(@D)
cp $^ $(@D)
cd $(@D) && npm ci --silent --ignore-scripts --no-audit --no-fund
endef

$(NODE)/.installed: tests/consumers/package.json tests/consumers/package-lock.json
	$(NPM_CI)
	touch $@

$(SCHEMA)/.installed: tests/chart/grafana/package.json tests/chart/grafana/package-lock.json
	$(NPM_CI)
	touch $@

$(BROWSER)/.installed: tests/browser/package.json tests/browser/package-lock.json $(addprefix tests/browser/,unpack.mjs headless.sh fonts.conf)
	$(NPM_CI)
	node $(@D)/unpack.mjs
	touch $@

$(RELEASE)/.installed: release/tools.lock
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --require-hashes --only-binary=:all: -r release/tools.lock
	touch $@

demo: $(DEMO)  ## the whole service on a real local broker: letters fail, wait, come back; tasks, timers, schedules; a report
	$(BIN)/python -m examples.demo

# Most tests wait most of the time: for sessions to end, clocks, brokers. The long ones come first.
IN_TURN := --dist loadscope --no-loadscope-reorder
# Who hangs in C hears no timeout of pytest: after it, the process ends with what each thread did, and the run with the test's name.
IN_TURN += --max-worker-restart=0 -o faulthandler_timeout=2000 -o faulthandler_exit_on_timeout=true
test: setup  ## first size: what tells in five minutes whether a change holds; needs Python and Java
	$(BIN)/python -m pytest -q -m '(essential or not check) and not slow and not release' --numprocesses 3 $(IN_TURN)

check: setup tools lint  ## second size: all that CI runs besides `make test`: style, types, the chart, Chromium, long runs; 30 minutes
	$(BIN)/python -m pytest -q -m 'check and not (essential or slow or release)' --numprocesses 3 $(IN_TURN)

lint: setup  ## style, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/mypy --no-error-summary
	$(BIN)/lint-imports --no-cache

docs: setup  ## renew what pages of docs/ show of the code: metrics, settings, commands, errors
	$(BIN)/python -m tests.support.generated_docs

simulate: setup  ## workers over a log in memory, faults at every step: SEEDS=10000 runs, half an hour on two cores
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

bench: setup  ## rates, lateness and memory beside the machine's own limit
	$(BIN)/python -m tests.bench

REV ?= HEAD~1
bench-compare: setup  ## intake and sweep of this tree against REV=HEAD~1: six pairs in turn, medians of their ratios; a quarter of an hour
	$(BIN)/python -m tests.bench.compare --rev $(REV)

load: setup  ## HTTP timers made and fired in a second, by one API and one worker: TIMERS=10000
	$(BIN)/python -m tests.bench.timers --timers $(TIMERS)

PEERS ?= ../shared/peers
bench-peers: setup  ## the same work done by a Kafka Streams service (PEERS=folder of it and its harness; Maven), in turn, three times
	$(BIN)/python -m tests.bench.peers --peers $(PEERS)

bench-scale: setup  ## what grows with ten million waiting entries, 1,000 topics, 64 shards; a thundering herd; actions: half an hour, 20 GB
	$(BIN)/python -m tests.bench.scale

LETTERS ?= 1000000
bench-console: setup  ## the console with LETTERS=1000000 letters beside 1,000/s in and out: how fast it answers, how old it is, memory
	$(BIN)/python -m tests.bench.console --sizes $(LETTERS)

EVENTS ?= 10000000
MEMORY ?= 1200m
bench-analytics: setup  ## analytics over EVENTS=10000000 generated events, and a report on 100,000 letters: time and memory
	$(BIN)/python -m tests.bench.analytics --events $(EVENTS) --memory $(MEMORY)
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	  $(BIN)/python -m tests.bench.analytics --events 260000 --keep "$$dir" && \
	  $(BIN)/python -m tests.bench.analytics --events 260000 --keep "$$dir" --quick

PROCESSES ?= 3
SPREAD := --numprocesses $(PROCESSES) --dist worksteal
faults: setup  ## the slow fault runs on real brokers with a table of them, and every property on fifty times as many examples
	$(BIN)/python -m pytest -q -m "(slow or fault) and not (alone or release)" $(SPREAD) --faults-table build/faults.txt tests
	$(BIN)/python -m pytest -q -m "slow and alone and not release" --faults-table build/faults-alone.txt tests
	$(BIN)/python -m pytest -q --hypothesis-profile=thorough $(SPREAD) tests/unit

MINUTES ?= 60
soak: setup  ## an hour of load and random faults (MINUTES=60), then `retry verify`; adds a line to docs/evidence/soak.md
	$(BIN)/python -m tests.soak --minutes $(MINUTES)

TAG ?= $(shell git describe --tags --exact-match --match 'v*' 2>/dev/null)
release: setup tools  ## wheel, chart, list of components and their hashes into dist/, of what is committed under TAG=v1.2.3, and is at URL=https://…
	$(BIN)/python -m release.build --tag=$(TAG) --to dist $(addprefix --url=,$(URL))

IMAGES := build/images
ARCHITECTURES ?= amd64
images: setup  ## images of the Dockerfile without Docker, and lists of what is in them, into build/images; as root, with buildah and mmdebstrap from Debian
	$(BIN)/python -m release.images --to $(IMAGES) $(addprefix --architecture=,$(ARCHITECTURES))

DEBIAN := build/debian
SUITES ?= trixie sid
test-debian:  ## `make test` in a root of each of SUITES="trixie sid": Python 3.13 and 3.14, OpenJDK 21 and 25; as root, with mmdebstrap from Debian; half an hour
	$(PYTHON) -m release.debian_roots --to $(DEBIAN) $(addprefix --suite=,$(SUITES))

# A stand-in for S3; it is asked by tests alone.
MOTO := build/moto
$(MOTO)/.installed: release/moto.lock
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --require-hashes --only-binary=:all: -r release/moto.lock
	touch $@

APISERVER := build/apiserver
DEFINED := go list -C tests/chart/crds -m -f '{{.Dir}}'
$(APISERVER)/.installed: tests/chart/apiserver/go.mod tests/chart/apiserver/go.sum tests/chart/crds/go.mod tests/chart/crds/go.sum
	mkdir -p $(APISERVER)/definitions
	go -C tests/chart/crds mod download github.com/kedacore/keda/v2 github.com/prometheus-operator/prometheus-operator sigs.k8s.io/gateway-api
	install -m 0644 $$($(DEFINED) github.com/kedacore/keda/v2)/config/crd/bases/keda.sh_scaledobjects.yaml \
	  $$($(DEFINED) github.com/prometheus-operator/prometheus-operator)/example/prometheus-operator-crd/*_servicemonitors.yaml \
	  $$($(DEFINED) github.com/prometheus-operator/prometheus-operator)/example/prometheus-operator-crd/*_prometheusrules.yaml \
	  $$($(DEFINED) sigs.k8s.io/gateway-api)/config/crd/standard/*_httproutes.yaml \
	  $(APISERVER)/definitions
	cd $(<D) && CGO_ENABLED=0 GOBIN=$(abspath $(APISERVER)) go install -trimpath -gcflags='all=-N -l' \
	  -ldflags="-s -X k8s.io/component-base/version.gitVersion=$$(go list -m -f '{{.Version}}' k8s.io/kubernetes)" tool
	touch $@

# What takes long, asks registries, or needs programs that CI does not install: for a release, not for each change. What could not be
# looked up (2) is said, and is no failure; what is known against a package is one.
check-release: setup tools $(MOTO)/.installed $(if $(shell command -v buildah),images) $(if $(shell command -v go),$(APISERVER)/.installed)
check-release:  ## last size: images, the chart on a real API server, frameworks attached, analytics on S3 and HDFS, what is known against packages; an hour
	$(BIN)/python -m pytest -q -m 'release' tests
	$(BIN)/python -m pytest -q tests/integration/test_release.py
	$(BIN)/python -m release.scan --venv $(RELEASE) requirements.lock $(addprefix release/,build.lock moto.lock tools.lock) || [ $$? = 2 ]

# What images have is a part of requirements.lock: the same versions and hashes.
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header
PART := $(LOCK) --no-annotate --constraint requirements.lock
RUNS := --extra console --extra otel --extra notifications
lock:  ## renew requirements.lock, and in release/ the locks of images and of what builds and checks releases
	$(LOCK) $(RUNS) --extra mcp --extra analytics --extra dev -o requirements.lock pyproject.toml
	$(PART) $(RUNS) -o release/retry.lock pyproject.toml
	$(PART) $(RUNS) --extra analytics -o release/analytics.lock pyproject.toml
	$(PART) -o release/build.lock release/build.in
	$(PART) -o release/demo.lock release/demo.in
	$(LOCK) -o release/tools.lock release/tools.in
	$(LOCK) --no-annotate -o release/moto.lock release/moto.in

clean:  ## remove what setup and tools made
	rm -rf $(VENV) $(TOOLS) $(NODE) $(SCHEMA) $(BROWSER) $(RELEASE) $(MOTO) $(APISERVER) $(IMAGES) $(DEBIAN)
