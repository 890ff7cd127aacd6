# The commands of a developer's day. Every target makes .venv first, so a fresh clone needs nothing but Python 3.11 and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made-from-pyproject
BENCH := $(VENV)/.made-for-bench

.PHONY: setup run test check bench demo-race demo-kill demo-growth demo-deploy soak format clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[postgres,testing,otel]" --group dev
	touch $(STAMP)

run: setup
	$(BIN)/python -m tenuto.demo

test: $(BENCH)
	$(BIN)/python -m pytest -q -n 2 -m "not soak"

check: $(BENCH)
	$(BIN)/ruff check src tests bench demos
	$(BIN)/ruff format --check src tests bench demos
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -p no:cacheprovider tests/test_architecture.py tests/test_exports.py

bench: $(BENCH)
	$(BIN)/python -m bench

demo-race demo-kill demo-growth demo-deploy: demo-%: $(BENCH)
	$(BIN)/python -m demos.$*

$(BENCH): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[bench]"
	touch $(BENCH)

soak: setup
	$(BIN)/python -m pytest -q -n 2 -m soak

format: setup
	$(BIN)/ruff check --fix src tests bench demos
	$(BIN)/ruff format src tests bench demos

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
