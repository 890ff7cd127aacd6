"""One import runs the whole contract: no module of the folder, and no test of a module, is left out of it."""

import ast
import sys
from collections import Counter
from pathlib import Path

import pytest

from tenuto.testing.contract import all as contract
from tests.example_backend import test_example_contract as example
from tests.store import test_contract as ours

FOLDER = Path(contract.__file__).parent
MODULES = sorted(path for path in FOLDER.glob("*.py") if path.stem not in {"__init__", "all"})


def _tests_in(path: Path) -> list[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, functions)]
    return [name for name in found if name.startswith("test_")]


def test_every_module_of_the_folder_is_in_it() -> None:
    assert list(contract.MODULES) == [path.stem for path in MODULES]
    assert len(MODULES) > 30


def test_every_test_of_every_module_is_in_it_under_a_name_of_its_own() -> None:
    names = Counter(name for path in MODULES for name in _tests_in(path))
    assert [name for name, times in names.items() if times > 1] == []
    assert sorted(contract.__all__) == sorted(names)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_every_module_has_tests_and_stays_small_enough_to_read(path: Path) -> None:
    assert _tests_in(path)
    assert len(path.read_text().splitlines()) <= 450


def test_its_assertions_show_their_values() -> None:
    """pytest rewrites them as it does those of a test file."""
    names = [f"tenuto.testing.contract.{path.stem}" for path in MODULES]
    names += ["tenuto.testing.checks", "tenuto.testing.probes", "tenuto.testing.scenes.lane_scene"]
    assert {type(sys.modules[name].__loader__).__name__ for name in names} == {"AssertionRewritingHook"}


@pytest.mark.parametrize("user", [ours, example], ids=lambda module: module.__name__)
def test_its_users_run_all_of_it(user: object) -> None:
    assert set(contract.__all__) <= vars(user).keys()


def test_no_test_decides_by_the_name_of_a_backend() -> None:
    """What a test may ask of a backend is a capability."""
    found = [path.stem for path in MODULES if "harness.name" in path.read_text() or "backend.name" in path.read_text()]
    assert found == []
