# Every target sets up what it needs: the first run makes .venv from the pinned constraints.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.installed
PYTEST_ARGS ?=
BENCH_ARGS ?=
FAULTS_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long lint format bench bench-peers bench-flat bench-spread faults fault-breaks soak soak-tools parked mutants public-mcp lock clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

$(RUNTIME): pyproject.toml constraints.txt
	@echo "setting up $(VENV) (a minute on a fresh machine)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(STAMP): $(RUNTIME)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(STAMP) ## make .venv with the pinned dependencies

demo: $(RUNTIME) ## play the whole story on an embedded Valkey; exit 0 only if every step held
	@$(BIN)/mutation-ledger demo

# Many tests wait for a lease or a process, so half as many processes again as there are cores keep those busy.
TEST_PROCESSES := $(shell cores=$$(nproc); echo $$((cores + (cores + 1) / 2)))

test: $(STAMP) ## unit, integration and acceptance tests
	@$(BIN)/python -m pytest -m 'not npm' -n $(TEST_PROCESSES) --dist worksteal $(PYTEST_ARGS)

test-long: $(STAMP) ## the same with more examples, and the soaks
	@MUTATION_LEDGER_TESTS=long $(BIN)/python -m pytest -m 'not npm' -n auto --dist worksteal --timeout 1800 $(PYTEST_ARGS)

lint: $(STAMP) ## ruff, mypy strict, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(STAMP) ## rewrite the code in the house format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(STAMP) ## speed against the floor of two confirmed writes, RQ, Dramatiq and BullMQ; ten minutes
	@$(BIN)/python -m tests.bench.install few
	@$(BIN)/python -m tests.bench run $(BENCH_ARGS)

bench-peers: $(STAMP) ## the same against the other job queues and engines; installs them into .bench/
	@$(BIN)/python -m tests.bench.install all
	@$(BIN)/python -m tests.bench peers $(BENCH_ARGS)

bench-flat: $(STAMP) ## cost per mutation with 1,000, 100,000 and 1,000,000 sessions
	@$(BIN)/python -m tests.bench flat $(BENCH_ARGS)

bench-spread: $(STAMP) ## commands per mutation, keys and work on one server and on a cluster of three
	@$(BIN)/python -m tests.bench spread $(BENCH_ARGS)

faults: $(STAMP) ## the whole fault matrix: kill -9, power loss, lost replies, clocks, failover; half an hour, goes on when called again
	@$(BIN)/python -m tests.faults run $(FAULTS_ARGS)

fault-breaks: $(STAMP) ## break the code once for each invariant; a harness that sees nothing wrong is a failure
	@$(BIN)/python -m tests.faults.breaking

soak-tools: $(STAMP) ## 2,000 calls to MCP servers that fail in every way: right statuses, no leaks; SOAK_CALLS=, SOAK_SEED=
	@SOAK_CALLS=$${SOAK_CALLS:-2000} $(BIN)/python -m pytest -q -s -p no:randomly tests/soak/test_tools.py $(PYTEST_ARGS)

parked: $(STAMP) ## 2,000 handlers waiting for a person in one worker: memory, time to resume, others' speed
	@MUTATION_LEDGER_TESTS=long $(BIN)/python -m pytest -q -s -p no:randomly tests/integration/test_handlers_parked.py $(PYTEST_ARGS)

soak: $(STAMP) ## 10,000 sessions, 100,000 mutations, something killed every 5 to 20 s; SOAK_ARGS='--sessions 1000 --mutations 10000' for less
	@$(BIN)/python -m tests.faults.soak $(SOAK_ARGS)

mutants: $(STAMP) ## break the code one line at a time; a test that stays green is a failure
	@$(BIN)/python -m tests.mutants.run

PUBLIC := .public-mcp
$(PUBLIC)/.installed: | $(STAMP)
	@npm install --silent --no-audit --no-fund --prefix $(PUBLIC) @modelcontextprotocol/server-filesystem
	@$(PYTHON) -m venv $(PUBLIC)/venv
	@$(PUBLIC)/venv/bin/python -m pip install --quiet --disable-pip-version-check mcp-server-git
	@touch $@

public-mcp: $(STAMP) $(PUBLIC)/.installed ## protected calls on public MCP servers (npm and PyPI packages)
	@$(BIN)/python -m pytest -m npm -p no:randomly tests/acceptance/test_public_mcp.py $(PYTEST_ARGS)

lock: ## write constraints.txt anew from pyproject.toml
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --extra dev --no-emit-index-url --no-annotate --no-header -o constraints.txt pyproject.toml

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
