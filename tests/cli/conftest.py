"""A folder with the user's code, and the databases that commands and tests both open."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Place
from tests.servers import SCHEMA


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, from which commands import; what they imported is forgotten after the test."""
    monkeypatch.delenv("TENUTO_STORE", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name, module in [*sys.modules.items()]:
        if (file := getattr(module, "__file__", None)) and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.fixture
def file(tmp_path: Path) -> Place:
    return Place(f"sqlite:///{tmp_path}/chats.db")


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, file: Place) -> Place:
    if request.param == "sqlite":
        return file
    return Place(request.getfixturevalue("fresh_postgres")(), {"schema": SCHEMA})
