"""Databases that several processes can open."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.processes import Database
from tests.servers import MEMORY, SCHEMA


@pytest.fixture
def shared_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: what a killed process wrote is safe there, and no disk is waited for."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="tenuto-", dir=MEMORY))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def make_database(request: pytest.FixtureRequest, shared_folder: Path) -> Callable[[str], Database]:
    def make(name: str) -> Database:
        if name == "sqlite":
            return Database(name=name, address=f"sqlite:///{shared_folder}/test.db", folder=shared_folder)
        address = request.getfixturevalue("fresh_postgres")()
        return Database(name=name, address=address, options={"schema": SCHEMA, "pool_size": 4}, folder=shared_folder)

    return make


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, make_database: Callable[[str], Database]) -> Database:
    return make_database(request.param)


@pytest.fixture
def sqlite_database(make_database: Callable[[str], Database]) -> Database:
    return make_database("sqlite")
