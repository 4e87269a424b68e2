# Every target makes .venv by itself: a fresh machine needs Python 3.11+, make and git.

# The first interpreter that is new enough; set PYTHON to choose another.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# What people wrote and the checkers read.
CODE := src tests tools $(wildcard bench examples)

.DEFAULT_GOAL := help
.PHONY: help demo serve test check bench peers clean

help: ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

demo: $(STAMP) ## watch a prefix being reused by a real model (fetches 93 MB once)
	$(BIN)/headwater demo

serve: $(STAMP) ## serve the default model at http://127.0.0.1:8000 (ARGS="..." for more flags)
	$(BIN)/headwater serve $(ARGS)

test: $(STAMP) ## run the tests
	$(BIN)/python -m pytest

check: $(STAMP) ## lint, format, types, import layers, house limits
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/house.py

bench: $(STAMP) ## measure everything into bench/results.json
	$(BIN)/python -m bench all --json bench/results.json

peers: $(STAMP) ## install the engines that the benchmarks compare with, into .peers
	$(BIN)/python -m bench.peers

clean: ## remove .venv and all caches, not .peers
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis dist build
	find src tests tools -name __pycache__ -type d -exec rm -rf {} +

# The stamp is older than these two files when what must be installed has changed.
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Headwater needs Python 3.11 or later; none was found." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -e '.[server,dev]' -c constraints.txt
	touch $@
