# Two commands from a fresh clone: `make train` and `make test`. Both make the environment (.venv) when it is missing
# or when the lock file or pyproject.toml has changed since.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV ?= .venv
LOCK := requirements/cpu.txt
QUICKSTART := outputs/quickstart
BIN := $(abspath $(VENV))/bin
KEY := $(shell cat $(LOCK) pyproject.toml | sha256sum | cut -c1-16)
STAMP := $(VENV)/.installed-$(KEY)

export PATH := $(BIN):$(PATH)
export VIRTUAL_ENV := $(abspath $(VENV))
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# step "what" command...: says what runs and how long it took.
define steps
step() { local what=$$1 start=$$SECONDS; shift; printf '==> %s\n' "$$what"; "$$@"; printf '==> %s: %ds\n' "$$what" $$((SECONDS - start)); }
endef

.PHONY: help env train test test-gpu lint type clean

help:
	@echo "make train | test | test-gpu | lint | type | env | clean"

env: $(STAMP)

$(STAMP):
	@$(steps)
	$(PYTHON) -c 'import sys; sys.exit(None if (3, 10) <= sys.version_info < (3, 13) else
	    "PYTHON=$(PYTHON) is Python %d.%d; verl needs 3.10 to 3.12: run make with PYTHON=python3.11" % sys.version_info[:2])'
	rm -f $(VENV)/.installed-*
	step "virtual environment $(VENV)" $(PYTHON) -m venv $(VENV)
	total=$$(grep -c == $(LOCK))
	# Two at a time, the large ones (at the end of the alphabet) first; -qq because each would warn of what the other
	# has half written. Modules are compiled when first imported.
	install() {
	    local done=0 chunk
	    while read -r chunk; do
	        done=$$((done + chunk)); printf '    %3d of %d packages\n' $$done $$total
	    done < <(grep == $(LOCK) | tac | xargs -P 2 -n 9 bash -c \
	        'pip install --no-deps --no-compile -qq "$$@" && echo $$#' pip)
	    test $$done -eq $$total
	}
	step "$$total locked packages" install
	step "verl-kernel, editable" pip install --no-deps --no-build-isolation --quiet -e .
	touch $@

train: env
	@$(steps)
	step "tasks, tokenizer and warm-started model in $(QUICKSTART)" verl-kernel data quickstart --out $(QUICKSTART)
	step "recipe cpu_quickstart" recipes/cpu_quickstart/run.sh

test: env
	@$(steps)
	step "tests" python -m pytest --durations=10 $(PYTEST_ARGS)

# Needs a GPU, torch, triton, numpy, pydantic, psutil and pytest: no verl, no vLLM, no environment of ours.
test-gpu:
	@$(steps)
	python=$$(command -v python || command -v $(PYTHON))
	$$python -c 'import importlib.util, sys
	missing = [n for n in ("torch", "triton", "numpy", "pydantic", "psutil", "pytest") if not importlib.util.find_spec(n)]
	sys.exit(f"make test-gpu needs the packages {chr(44).join(missing)}: pip install them" if missing else 0)'
	step "tests that need a GPU" env PYTHONPATH=$(CURDIR) $$python -m pytest tests/gpu --confcutdir=tests/gpu -rs $(PYTEST_ARGS)

lint: env
	@ruff check . && ruff format --check .

type: env
	@mypy

clean:
	rm -rf $(VENV) build dist outputs
