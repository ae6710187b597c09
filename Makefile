# make serve   the service, on ports 8080 (HTTP) and 8081 (gRPC), with example rules
# make demo    limits at work in the terminal
# make test    the whole test suite, with the compiled core and without
# make check   lint, formatting, types, imports and docs
# make bench   Penstock beside its peers (about five minutes; make bench ARGS=--quick)
# make fuzz    ten minutes each of broken rules, gRPC frames, HTTP and shared files
# make soak    the properties and the kill tests for a long time
# make lock    move the exact versions in requirements/ within the ranges of pyproject.toml
# Each of them sets up what it needs, in .venv, and is quick when nothing changed.
# make clean   remove .venv and all that was built

SHELL := /bin/bash
VENV  := .venv
BIN   := $(VENV)/bin
PIP   := $(BIN)/python -m pip --disable-pip-version-check --quiet
CORE  := $(shell find src -name "*.py" -o -name "*.pyx" -o -name "*.pxd" -o -name "*.h") setup.py pyproject.toml
ARGS  ?=

.PHONY: help serve demo test check bench fuzz soak lock clean
help:
	@sed -n 's/^# //p' Makefile | head -10

# What is set up leaves a mark; a mark is made anew when what it stands for has changed.
.make/venv: tools/environment.sh
	@tools/environment.sh $(VENV)
	@mkdir -p .make && touch $@

# Serving and building need few packages, the tests many.
.make/serve-packages: requirements/serve.lock | .make/venv
	@echo "setup: the $$(grep -c == requirements/serve.lock) packages of requirements/serve.lock"
	@$(PIP) install -r requirements/serve.lock
	@touch $@

.make/packages: requirements/ci.lock | .make/serve-packages
	@echo "setup: the $$(grep -c == requirements/ci.lock) packages of requirements/ci.lock, which takes a minute"
	@$(PIP) install -r requirements/ci.lock
	@touch $@

.make/bench-packages: requirements/bench.lock | .make/packages
	@echo "setup: the $$(grep -c == requirements/bench.lock) packages of requirements/bench.lock"
	@$(PIP) install -r requirements/bench.lock
	@touch $@

.make/library: tools/nghttp2.sh | .make/venv
	@tools/nghttp2.sh .make/nghttp2
	@touch $@

.make/penstock: $(CORE) | .make/serve-packages .make/library
	@echo "setup: building Penstock, which takes about a minute"
	@find src -name '*.so' -delete
	@$(PIP) install --no-build-isolation --no-deps -e .
	@$(BIN)/penstock --version
	@touch $@

serve: .make/penstock
	@$(BIN)/penstock serve --rules examples/service.yaml $(ARGS)

demo: .make/penstock
	@$(BIN)/penstock demo

test: .make/penstock .make/packages
	@tools/nginx.sh .make/nginx
	@tools/program.sh .make/haproxy haproxy haproxy
	@tools/program.sh .make/nft nft nftables
	@tools/postgres.sh .make/postgres $(BIN)/python
	@tools/chromium.sh
	@PATH="$(CURDIR)/.make/nginx:$(CURDIR)/.make/postgres/bin:$$PATH" tools/test.sh $(BIN)/pytest $(ARGS)

check: .make/penstock .make/packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/typing
	$(BIN)/pytest -q tests/test_layers.py tests/test_api.py tests/test_docs.py

bench: .make/penstock .make/bench-packages
	$(BIN)/python -m benchmarks $(ARGS)

fuzz: .make/penstock .make/packages
	$(BIN)/python tests/rules/reading/fuzz.py --minutes 10 $(ARGS)
	$(BIN)/python tests/wires/grpc/fuzz.py --minutes 10 $(ARGS)
	$(BIN)/python tests/wires/http/fuzz.py --minutes 10 $(ARGS)
	$(BIN)/python tests/service/rlqs/fuzz.py --minutes 5 $(ARGS)
	$(BIN)/python tests/replay/fuzz.py --minutes 10 $(ARGS)
	PENSTOCK_PURE=1 $(BIN)/python tests/stores/fuzz_mapped.py --minutes 5 $(ARGS)
	@mkdir -p build
	tools/asan.sh build/asan $(BIN)/python tests/stores/fuzz_mapped.py --minutes 10 $(ARGS)

# These take longer than a test otherwise may.
soak: .make/penstock .make/packages
	PENSTOCK_EXAMPLES=20000 $(BIN)/pytest -q --timeout 0 tests/properties tests/stores/leased/test_law.py
	PENSTOCK_EXAMPLES=20000 $(BIN)/pytest -q --timeout 0 tests/service/rlqs/test_envelope.py tests/running/e2e/test_rlqs_fleet.py
	PENSTOCK_KILLS=5000 $(BIN)/pytest -q --timeout 0 -s tests/stores/test_shared_processes.py
	PENSTOCK_KILLS=1000 $(BIN)/pytest -q --timeout 0 -s tests/concurrency/test_slot_processes.py
	PENSTOCK_LEASE_SECONDS=600 $(BIN)/pytest -q --timeout 0 tests/stores/leased/test_lease_faults.py -k "four or never"
	PENSTOCK_EXAMPLES=20000 $(BIN)/pytest -q --timeout 0 tests/stores/regions/test_envelope.py
	PENSTOCK_REGION_SECONDS=300 $(BIN)/pytest -q --timeout 0 -s tests/stores/regions/test_cuts.py
	PENSTOCK_LEDGER_KILLS=200 $(BIN)/pytest -q --timeout 0 tests/quota/test_kills.py
	PENSTOCK_SERVICE_KILLS=200 $(BIN)/pytest -q --timeout 0 tests/quota/test_service_kills.py
	PENSTOCK_OUTAGE=30 $(BIN)/pytest -q --timeout 0 tests/running/e2e/test_fleet_under_load.py
	$(BIN)/python tests/running/soak.py --minutes 30
	PENSTOCK_ROUNDS=1000 $(BIN)/pytest -q --timeout 0 -s tests/concurrency/test_slot_chaos.py

# Exact versions, from the ranges in pyproject.toml; run it to move them.
lock: .make/venv
	@tools/lock.sh $(VENV)

clean:
	rm -rf .make build $(VENV) *.egg-info src/*.egg-info
	find src -name '*.so' -delete
