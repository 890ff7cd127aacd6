"""Databases that several processes can open."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenuto.ids import new_id
from tests.crash.processes import Database
from tests.servers import Postgres


@pytest.fixture
def shared_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: what a killed process wrote is safe there, and no disk is waited for."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="tenuto-", dir=memory))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def make_database(request: pytest.FixtureRequest, shared_folder: Path) -> Callable[[str], Database]:
    def make(name: str) -> Database:
        if name == "sqlite":
            return Database(name=name, address=f"sqlite:///{shared_folder}/test.db", folder=shared_folder)
        server: Postgres = request.getfixturevalue("postgres")
        options = {"schema": f"t_{new_id().replace('-', '_')}", "pool_size": 4}
        return Database(name=name, address=server.url, options=options, folder=shared_folder)

    return make


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, make_database: Callable[[str], Database]) -> Database:
    return make_database(request.param)


@pytest.fixture
def sqlite_database(make_database: Callable[[str], Database]) -> Database:
    return make_database("sqlite")
