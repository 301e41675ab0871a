# Two commands for newcomers: `make demo` trains and opens with a report, `make test` checks everything.
# Each sets itself up: the standard library's venv, pip, and the pinned versions of constraints.txt.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUN_DIR ?= runs/demo
STAMP := $(VENV)/.installed
# verl's pins exclude TRL's: it has an environment of its own.
VERL_VENV ?= .venvs/verl
VERL_STAMP := $(VERL_VENV)/.installed
# Tiny models run fastest on one thread each; two stall under any other load.
export OMP_NUM_THREADS ?= 1
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: help setup demo test test-fast fuzz lint test-trl-matrix test-verl bench soak clean

help:
	@echo "make demo             train 'uniform' and the best strategy at the same budget, and write report.html"
	@echo "make test             lint, types, import rules and all tests"
	@echo "make test-fast        the tests without real training runs"
	@echo "make fuzz             the readers, the settings, saved states and the controller under random input, for minutes"
	@echo "make test-trl-matrix  the TRL adapter against the oldest, some middle and the newest TRL"
	@echo "make test-verl        the verl adapter on real trainings: Ray, verl's workers and critic, without an accelerator"
	@echo "make soak             50 kills of trainings that must end as if never stopped"
	@echo "make bench            every figure of benchmarks/RESULTS.md"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[train,embed,cli,dev]'
	@touch $@

setup: $(STAMP)

demo: setup
	$(BIN)/neyman demo --out $(RUN_DIR)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -n 2 --dist loadgroup

test-fast: setup
	$(BIN)/pytest -n 2 --dist loadgroup -m 'not slow'

# Minutes of fresh random input; what it finds becomes a plain test. NEYMAN_FUZZ_EXAMPLES=10000 searches for longer.
fuzz: setup
	NEYMAN_HYPOTHESIS=fuzz $(BIN)/pytest -n 0 --timeout 3600 tests/fuzz tests/step/test_machine.py

test-trl-matrix: setup
	$(BIN)/python tests/trl_matrix.py

$(VERL_STAMP): pyproject.toml constraints-verl.txt
	$(PYTHON) -m venv $(VERL_VENV)
	$(VERL_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(VERL_VENV)/bin/python -m pip install --quiet -c constraints-verl.txt -e '.[verl,testing]' pytest-timeout pytest-xdist
	@touch $@

# Warnings are verl's and Ray's own.
test-verl: $(VERL_STAMP)
	$(VERL_VENV)/bin/pytest -n 2 --dist loadgroup -W ignore -o timeout=900 tests/verl

soak: setup
	$(BIN)/python tests/soak/crash.py --kills 50

bench: setup
	$(BIN)/python benchmarks/run_all.py --demo $(RUN_DIR) $(if $(DATA),--data $(DATA))

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
