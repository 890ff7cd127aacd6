"""Every test of the contract, for one import: `from tenuto.testing.contract.all import *`.

Whatever module stands beside this one is part of it.
"""

import sys
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import pytest

import tenuto.testing.contract as package

MODULES = tuple(sorted(each.name for each in iter_modules(package.__path__) if each.name != "all"))
"""The names of the modules, in the order in which their tests are run."""

_NAMES = [f"{package.__name__}.{name}" for name in MODULES]

# Before they are imported, so that a failed assertion shows its values; pytest warns of one that was imported before.
_REWRITTEN = [*_NAMES, "tenuto.testing.checks", "tenuto.testing.probes", "tenuto.testing.scenes"]
pytest.register_assert_rewrite(*(name for name in _REWRITTEN if name not in sys.modules))


def tests_of(module: ModuleType) -> dict[str, object]:
    """Return the tests that a module defines, by name."""
    return {name: test for name, test in vars(module).items() if name.startswith("test_")}


_tests: dict[str, object] = {}
for _name in _NAMES:
    _tests |= tests_of(import_module(_name))
globals().update(_tests)

__all__ = list(_tests)
