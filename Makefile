# Every target sets itself up: a private .venv from the locked dependencies, nothing by hand.
# Needs Python 3.11+ with pip; uv is used when present and otherwise fetched into .tools/.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# How many processes run the tests; "auto" is four more than there are cores. Busy machines get more: each
# test has a smaller share of a core then, and the whole is done sooner.
PROCESSES ?= auto
UV     := $(shell command -v uv 2>/dev/null || echo .tools/bin/uv)

export UV_PYTHON_DOWNLOADS := never
export UV_LINK_MODE := copy
# Without bytecode each of the hundreds of processes of the tests would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-all test-hard test-pythons check format dashboard docs sessions site pictures proto dist upload sbom bench chaos verify lock clean
.DEFAULT_GOAL := help

help: ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: dashboard ## Two workers and 28 jobs live on SQLite; then this repository's own CI, as a live graph
	$(BIN)/interlock demo
	$(BIN)/interlock demo --repository .

test: dashboard ## Run the tests (minutes)
	$(BIN)/pytest -q --processes $(PROCESSES)

test-all: dashboard ## Run every test, also the long ones (before an issue is closed)
	INTERLOCK_TEST_ALL=1 $(BIN)/pytest -q --processes $(PROCESSES)

test-hard: dashboard ## Run the tests on a machine that is kept busy: every core three times over, and the disk
	$(BIN)/python tools/busy.py $(MAKE) test PROCESSES=$$(( 6 * $$(nproc) ))

test-pythons: dashboard ## Install the wheel and the sdist on every Python that we support, which uv fetches
	UV_PYTHON_DOWNLOADS=automatic INTERLOCK_TEST_ALL=1 INTERLOCK_PYTHONS='3.11 3.12 3.13 3.14' $(BIN)/pytest -q tests/release

check: dashboard ## Lint, types, layers, links of the pages, and whether generated files are up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.interfaces --check
	$(BIN)/python tools/sync_client.py --check
	$(BIN)/python docs/generate.py --check
	$(BIN)/python -m bench.figure_page --check
	$(BIN)/python tools/proto.py --check
	$(BIN)/python tools/dashboard.py --check
	$(BIN)/codespell *.md bench deploy docs examples src tools verification web/src web/test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict || $(MAKE) site

dashboard: $(READY) ## Build the dashboard from web/, unless it is up to date
	@$(BIN)/python tools/dashboard.py

format: $(READY) ## Rewrite the code in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY) ## Regenerate docs/lifecycles, docs/reference, web/openapi.json, the interfaces and the synchronous client
	$(BIN)/python -m tools.interfaces
	$(BIN)/python tools/sync_client.py
	$(BIN)/python docs/generate.py

sessions: $(READY) ## Record the console sessions in docs/sessions, and the requests of the HTTP API
	$(BIN)/python tools/sessions.py
	$(BIN)/python tools/http_examples.py
	$(BIN)/python docs/generate.py

site: $(READY) ## Build the documentation site into .site, a folder for each version
	$(BIN)/python tools/site.py

pictures: dashboard ## Take the pictures of the dashboard in docs/pictures (minutes)
	$(BIN)/python tools/pictures.py

proto: $(READY) ## Make the Python of the fleet's wire from fleet.proto
	$(BIN)/python tools/proto.py

dist: dashboard ## Build wheel and sdist of both distributions, with the dashboard, into dist/
	rm -f dist/interlock*.whl dist/interlock*.tar.gz
	$(BIN)/python -m hatchling build --target sdist --target wheel --directory dist
	cd verification && $(abspath $(BIN))/python -m hatchling build --target sdist --target wheel --directory ../dist

upload: $(UV) ## Upload what `make dist` has built, with the token in UV_PUBLISH_TOKEN
	$(UV) publish dist/interlock*.whl dist/interlock*.tar.gz

sbom: $(READY) ## Write a CycloneDX SBOM of the locked runtime dependencies into dist/
	$(BIN)/python tools/sbom.py

bench: $(READY) ## Compare the kernel, the stores, the job queue and the server with their peers
	$(BIN)/python -m bench

chaos: $(READY) ## Kill, cut off and starve the stores, and count the losses (long)
	$(BIN)/python -m interlock_verification.chaos --long

verify: $(READY) ## Explore the real deciders exhaustively, break the tables, play years of worlds (long)
	$(BIN)/interlock verify model --long
	$(BIN)/interlock verify mutate
	$(BIN)/interlock verify world --years 5

lock: $(UV) ## Resolve the dependencies anew into requirements.lock
	$(UV) pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11 \
	  --all-extras --group dev --group docs --group bench --no-emit-package interlock --upgrade -o requirements.lock \
	  pyproject.toml verification/pyproject.toml

clean: ## Remove everything the other targets made
	rm -rf $(VENV) .tools .bench .site dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
	  web/node_modules web/src/api/schema.ts web/src/api/roles.ts src/interlock/server/dashboard

.tools/bin/uv:
	$(PYTHON) -m pip install --quiet --target .tools uv

$(READY): requirements.lock pyproject.toml verification/pyproject.toml | $(UV)
	$(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	INTERLOCK_DASHBOARD_LATER=1 \
	  $(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation \
	  --editable . --editable ./verification
	@touch $@
