"""Addresses that lead nowhere good: a typed error each, no driver error, and nothing changed on the way."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from tenuto import open_store
from tenuto.errors import SchemaMismatch, StoreError, StoreUnavailable, StoreUnusable
from tenuto.store.backends.sql import migrations
from tenuto.testing.factories import a_session
from tests.crash.processes import Database
from tests.servers import Postgres


async def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with open_store(f"sqlite:///{tmp_path}/new.db") as store:
            await a_session(store)
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"new.db": 0o600, "new.db-wal": 0o600, "new.db-shm": 0o600}


@pytest.mark.parametrize("migrate", [True, False])
@pytest.mark.parametrize(
    "content", [b"Dear diary, today I was not a database. " * 200, b"SQLite format 3\0" + b"!" * 4000]
)
async def test_a_file_that_is_no_database_is_refused_and_left_alone(
    tmp_path: Path, content: bytes, migrate: bool
) -> None:
    path = tmp_path / "diary.txt"
    path.write_bytes(content)
    with pytest.raises(StoreError) as refused:
        await open_store(f"sqlite:///{path}", migrate=migrate)
    assert not isinstance(refused.value, StoreUnavailable), "repeating it cannot help"
    assert str(path) in str(refused.value)
    assert path.read_bytes() == content
    assert [found.name for found in tmp_path.iterdir()] == ["diary.txt"]


async def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="directory"):
        await open_store(f"sqlite:///{tmp_path}")
    assert list(tmp_path.iterdir()) == []


async def test_a_path_below_a_file_or_in_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "test.db", tmp_path / "missing" / "test.db", tmp_path / ("n" * 300)):
        with pytest.raises(StoreUnusable, match="cannot be opened"):
            await open_store(f"sqlite:///{path}")
    assert [found.name for found in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "address", ["sqlite://", "sqlite:///", "mysql://localhost/x", "", "test.db", "postgresql://[broken", "sqlite:/x.db"]
)
async def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(StoreUnusable):
        await open_store(address)


AS_NOBODY = """
import asyncio, os, sys
from tenuto import open_store
from tenuto.errors import StoreUnusable
from tenuto.testing.factories import a_session

async def use(address):
    async with open_store(address) as store:
        await a_session(store, "another")
        await store.load("another")

async def main(own, other):
    await use(own)  # loads everything that only root may read
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    try:
        await use(other)
    except StoreUnusable as error:
        print(error)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users reach, as they do not reach pytest's."""
    made = Path(tempfile.mkdtemp(prefix="tenuto-bad-"))
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made)


@pytest.mark.parametrize("modes", [(0o444, 0o755), (0o444, 0o555), (0o666, 0o555), (0o000, 0o755)])
async def test_a_file_or_folder_that_cannot_be_written_is_refused(
    tmp_path: Path, folder: Path, modes: tuple[int, int]
) -> None:
    """In a process that is not root, which no permission stops."""
    path = folder / "test.db"
    async with open_store(f"sqlite:///{path}") as store:
        await a_session(store)
    before = path.read_bytes()
    path.chmod(modes[0])
    folder.chmod(modes[1])
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, f"sqlite:///{tmp_path}/own.db", f"sqlite:///{path}"],
        capture_output=True,
        text=True,
        check=False,
    )
    folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert str(path) in done.stdout, "it was not refused"
    assert path.read_bytes() == before


async def test_a_sqlite_database_newer_than_the_code_is_refused_by_both_versions(tmp_path: Path) -> None:
    path = tmp_path / "test.db"
    async with open_store(f"sqlite:///{path}") as store:
        key, _ = await a_session(store)
    ours = len(migrations("sqlite"))
    _sql(path, f"PRAGMA user_version = {ours + 2}")
    before = path.read_bytes()
    for migrate in (True, False):
        with pytest.raises(SchemaMismatch, match=rf"\b{ours + 2}\b.*\b{ours}\b") as refused:
            await open_store(f"sqlite:///{path}", migrate=migrate)
        assert (refused.value.found, refused.value.expected) == (ours + 2, ours)
        assert path.read_bytes() == before
    _sql(path, f"PRAGMA user_version = {ours}")
    async with open_store(f"sqlite:///{path}") as store:
        assert await store.exists(key)


async def test_a_postgres_database_newer_than_the_code_is_refused_by_both_versions(
    make_database: Callable[[str], Database],
) -> None:
    database = make_database("postgres")
    async with database.open() as store:
        key, _ = await a_session(store)
    ours = len(migrations("postgres"))
    await _server_sql(database.address, f"UPDATE {database.options['schema']}.schema_version SET version = {ours + 2}")
    for migrate in (True, False):
        with pytest.raises(SchemaMismatch, match=rf"\b{ours + 2}\b.*\b{ours}\b") as refused:
            async with database.open(migrate=migrate):
                pass
        assert (refused.value.found, refused.value.expected) == (ours + 2, ours)
    await _server_sql(database.address, f"UPDATE {database.options['schema']}.schema_version SET version = {ours}")
    async with database.open() as store:
        assert await store.exists(key)


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
async def test_without_migration_an_empty_database_is_refused_by_both_versions(
    make_database: Callable[[str], Database], name: str
) -> None:
    database = make_database(name)
    empty: dict[str, Any] = {} if name == "sqlite" else {"schema": "without_tables"}
    with pytest.raises(SchemaMismatch, match=r"\b0\b") as refused:
        await open_store(database.address, migrate=False, **empty)
    assert (refused.value.found, refused.value.expected) == (0, len(migrations(name)))


@pytest.mark.parametrize("migrate", [True, False])
@pytest.mark.parametrize(
    "made_by",
    [
        ["CREATE TABLE recipes (name TEXT)", "INSERT INTO recipes VALUES ('soup')"],
        ["PRAGMA user_version = 7"],
        ["PRAGMA application_id = 252006674", "CREATE TABLE recipes (name TEXT)"],
        ["PRAGMA journal_mode = wal", "CREATE TABLE recipes (name TEXT)"],
        ["CREATE TABLE session (sid INTEGER)", "PRAGMA user_version = 1"],
    ],
)
async def test_a_database_of_another_program_is_refused_and_left_alone(
    tmp_path: Path, made_by: list[str], migrate: bool
) -> None:
    path = tmp_path / "recipes.db"
    _sql(path, *made_by)
    before = path.read_bytes()
    with pytest.raises(StoreUnusable, match="another program"):
        await open_store(f"sqlite:///{path}", migrate=migrate)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["recipes.db"]


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable):
        await open_store("postgresql://127.0.0.1:1/nowhere")


async def test_a_server_that_refuses_us_is_unusable(postgres: Postgres) -> None:
    with pytest.raises(StoreUnusable):
        await open_store(postgres.url.replace("/postgres?", "/no_such_database?"))


@pytest.mark.parametrize("schema", ["", "Upper", "a b", "x; drop table y", "x" * 49, "1st"])
async def test_a_schema_name_that_would_need_quoting_is_refused(postgres: Postgres, schema: str) -> None:
    with pytest.raises(StoreUnusable):
        await open_store(postgres.url, schema=schema)


def _sql(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    try:
        for statement in statements:
            connection.execute(statement)
    finally:
        connection.close()


async def _server_sql(address: str, statement: str) -> None:
    connection = await asyncpg.connect(address)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
