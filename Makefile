# The commands of a developer's day. Every target makes .venv first, so a fresh clone needs nothing but Python 3.11 and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made-from-pyproject
WIDE := $(VENV)/.made-with-extras
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

STORE ?= sqlite
SEED ?= 1
SECONDS ?= 60
N ?= 20000

.PHONY: setup run test test-wide check bench chaos fuzz soak demo-race demo-kill demo-growth demo-deploy format clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade "pip>=25.1"
	$(PIP) --editable ".[postgres,testing,otel]" --group dev
	touch $(STAMP)

# What the wide tests and the benches compare with: frameworks and their own stores.
$(WIDE): $(STAMP)
	$(PIP) --editable ".[bench]"
	touch $(WIDE)

run: setup
	$(BIN)/python -m demos.tour

check: setup
	$(BIN)/ruff check src tests bench demos examples
	$(BIN)/ruff format --check src tests bench demos examples
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -p no:cacheprovider tests/test_architecture.py tests/test_bounded_polls.py tests/test_bounded_waits.py \
		tests/test_english.py tests/test_exports.py tests/test_private_parts.py

test: setup
	$(BIN)/python -m pytest -q -n 2 -m "not soak and not wide"

# The second part repeats what depends on the interpreter on the other installed Pythons of those we support.
test-wide: $(WIDE)
	$(BIN)/python -m pytest -q -n 2 -m "wide and not soak"
	$(BIN)/python -m tests.pythons

# A mixed load under faults, and an audit of the tables by themselves: make chaos SECONDS=60 STORE=postgres SEED=7
chaos: setup
	$(BIN)/python -m tests.chaos --seconds $(SECONDS) --store $(STORE) --seed $(SEED)

# Every verb with every class of nasty value: make fuzz N=20000 STORE=postgres
fuzz: setup
	$(BIN)/python -m tests.fuzz --count $(N) --store $(STORE) --seed $(SEED)

soak: setup
	$(BIN)/python -m pytest -q -n 2 -m soak --timeout 7200

bench: $(WIDE)
	$(BIN)/python -m bench

demo-race demo-kill demo-growth demo-deploy: demo-%: $(WIDE)
	$(BIN)/python -m demos.$*

format: setup
	$(BIN)/ruff check --fix src tests bench demos examples
	$(BIN)/ruff format src tests bench demos examples

clean:
	rm -rf $(VENV) .venv-3.* .mypy_cache .ruff_cache .pytest_cache .hypothesis
