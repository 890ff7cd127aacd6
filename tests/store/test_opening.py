"""Opening a store: what is not understood is refused by name, and no password is shown."""

import logging
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from typer.testing import CliRunner

from tenuto import open_store
from tenuto.cli.app import app
from tenuto.errors import InvalidInput, StoreUnusable, TenutoError
from tenuto.ids import new_id
from tenuto.store.backends.address import masked
from tenuto.store.schema import migrate
from tenuto.testing.factories import a_session
from tests.servers import Postgres

SECRET = "SECRETPW"


@pytest.mark.parametrize(
    "options",
    [
        {"bogus": 1},
        {"schema": "tenuto"},
        {"pool_size": 4},
        {"migrate": "no"},
        {"synchronous": "FULLL"},
        {"synchronous": "OFF; DROP"},
        {"synchronous": ""},
        {"synchronous": None},
        {"synchronous": 99},
        {"lock_timeout": "x"},
        {"lock_timeout": -1},
        {"lock_timeout": float("nan")},
        {"lock_timeout": float("inf")},
        {"vfs": "nope"},
        {"vfs": 5},
        {"budget": 5},
        {"clock": 5},
    ],
    ids=str,
)
async def test_an_option_that_means_nothing_to_sqlite_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        await open_store(f"sqlite:///{tmp_path}/new.db", **options)
    assert any(name in str(refused.value) for name in options)
    assert list(tmp_path.iterdir()) == []


async def test_an_unknown_option_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="lock_timeout") as refused:
        await open_store(f"sqlite:///{tmp_path}/new.db", sync="FULL")
    assert refused.value.details()["unknown"] == ["sync"]
    with pytest.raises(InvalidInput, match="pool_size"):
        await open_store("postgresql://127.0.0.1:1/x", pool=3, password=SECRET)
    with pytest.raises(InvalidInput, match="migrate"):
        await open_store("memory://", schema="x")


@pytest.mark.parametrize("word", ["OFF", "normal", "Full", "EXTRA"])
async def test_the_four_words_for_synchronous_are_taken_in_any_case(tmp_path: Path, word: str) -> None:
    async with open_store(f"sqlite:///{tmp_path}/new.db", synchronous=word) as store:
        backend: Any = store.backend
        assert backend._database.writer.pragma("synchronous") == ["OFF", "NORMAL", "FULL", "EXTRA"].index(word.upper())


@pytest.mark.parametrize(
    "options",
    [
        {"bogus": 1},
        {"synchronous": "FULL"},
        {"pool_size": 0},
        {"pool_size": -1},
        {"pool_size": "x"},
        {"pool_size": True},
        {"schema": 5},
        {"schema": None},
        {"migrate": "no"},
        {"command_timeout": 0},
        {"command_timeout": None},
        {"timeout": "x"},
        {"server_settings": 5},
        {"server_settings": {"search_path": "public"}},
        {"server_settings": {"SEARCH_PATH": "public"}},
        {"server_settings": {"work_mem": 5}},
        {"user": 5},
        {"ssl": "bogus"},
        {"statement_cache_size": "many"},
    ],
    ids=str,
)
async def test_an_option_that_means_nothing_to_postgres_is_refused(postgres: Postgres, options: dict[str, Any]) -> None:
    with pytest.raises((InvalidInput, StoreUnusable)) as refused:
        await open_store(postgres.url, **{"schema": "never_made", **options})
    assert not refused.value.retryable
    connection = await asyncpg.connect(postgres.url)
    try:
        assert not await connection.fetchval("SELECT to_regnamespace('never_made')")
        assert not await connection.fetchval("SELECT to_regclass('public.session')")
    finally:
        await connection.close()


@pytest.mark.parametrize("schema", ["information_schema", "pg_catalog", "pg_temp", "pg_mine", "x\n"])
async def test_a_schema_of_the_server_itself_is_refused(postgres: Postgres, schema: str) -> None:
    with pytest.raises(StoreUnusable):
        await open_store(postgres.url, schema=schema)


@pytest.mark.parametrize("schema", ["select", "user", "order"])
async def test_a_schema_named_like_a_word_of_sql_works(postgres: Postgres, schema: str) -> None:
    async with open_store(postgres.url, schema=schema, pool_size=2) as store:
        key, _ = await a_session(store, None, "a")
        assert await store.exists(key)
    assert (await migrate(postgres.url, "check", schema=schema)).ready


@pytest.mark.parametrize("where", ["search_path=public", "options=-csearch_path%3Dpublic"])
async def test_an_address_cannot_move_our_tables_elsewhere(postgres: Postgres, where: str) -> None:
    schema = f"t_{new_id().replace('-', '_')}"
    async with open_store(f"{postgres.url}&{where}", schema=schema, pool_size=2) as store:
        key, _ = await a_session(store)
    async with open_store(postgres.url, schema=schema, pool_size=2) as store:
        assert await store.exists(key)


@pytest.mark.parametrize("address", [None, 5, b"sqlite:///x", Path("x.db"), [], True, float("nan")], ids=repr)
async def test_an_address_that_is_not_text_is_refused(address: Any) -> None:
    with pytest.raises(InvalidInput, match="sqlite:///"):
        await open_store(address)


@pytest.mark.parametrize(
    "address",
    [
        "sqlite:///a\0b",
        "sqlite:///a%00b.db",
        "sqlite:///\ud800",
        "\0",
        f"postgresql+asyncpg://u:{SECRET}@h/x",
        f"postgresql+psycopg://app:{SECRET}@db:5432/app",
        f"POSTGRESQL://app:{SECRET}@db:5432/app",
        f" postgresql://app:{SECRET}@db/app",
        f"postgresql://app:{SECRET}:5@x@127.0.0.1:59999999/app",
        f"postgresql://u:{SECRET}@h:abc/x",
        f"postgresql://u:{SECRET}@h:99999/x",
        f"postgresql://u:{SECRET}@localhost:1/x?sslmode=bogus",
        f"postgresql://[::1:{SECRET}@x",
        f"redis://:{SECRET}@h/0",
        f"mysql://u:{SECRET}/with@slash@h/0",
        f"sqlite://u:{SECRET}@h",
        f"u:{SECRET}@h",
        f"host=db password={SECRET}",
    ],
)
async def test_no_refused_address_shows_its_password(address: str) -> None:
    with pytest.raises(TenutoError) as refused:
        await open_store(address)
    error: BaseException | None = refused.value
    while error is not None:
        assert SECRET not in str(error) + repr(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert SECRET not in repr(refused.value.details())


async def test_no_unreachable_server_shows_its_password() -> None:
    with pytest.raises(TenutoError) as refused:
        await open_store(f"postgresql://u:{SECRET}@127.0.0.1:1/x")
    assert refused.value.retryable
    assert SECRET not in repr(refused.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://u:pw@h/x", "postgresql://u:***@h/x"),
        ("postgresql://u:p@w:d@h:5/x", "postgresql://u:***@h:5/x"),
        ("postgresql://h/x?user=u&password=pw&port=5", "postgresql://h/x?user=u&password=***&port=5"),
        ("postgresql://h/x", "postgresql://h/x"),
    ],
)
def test_an_address_is_masked(address: str, shown: str) -> None:
    assert masked(address) == shown


async def test_the_spelling_of_another_library_is_put_right() -> None:
    with pytest.raises(StoreUnusable, match=r"write postgresql:// without \+asyncpg"):
        await open_store("postgresql+asyncpg://u:p@h/x")


def test_the_command_line_refuses_in_one_line_and_shows_no_password(tmp_path: Path) -> None:
    path = tmp_path / "there.db"
    path.touch()
    for store, more in (
        (f"sqlite:///{path}", ["--schema", "x"]),
        (f"sqlite:///{tmp_path}/{'n' * 300}", []),
        (f"postgresql+asyncpg://u:{SECRET}@h/x", []),
        (f"postgresql://u:{SECRET}@127.0.0.1:1/x", []),
    ):
        done = CliRunner().invoke(app, ["session", "list", "--store", store, *more])
        assert done.exit_code == 2, done.output
        assert done.exception is None or isinstance(done.exception, SystemExit)
        assert SECRET not in done.output
        assert "operation id" not in done.output


async def test_a_file_that_everybody_can_read_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "open.db"
    path.touch()
    path.chmod(0o666)
    with caplog.at_level(logging.WARNING, "tenuto.store"):
        for _ in range(2):
            async with open_store(f"sqlite:///{path}") as store:
                await a_session(store)
    assert [record.message for record in caplog.records if str(path) in record.message] == [
        f"{path} can be read or written by every user of this machine; chmod 600 keeps it yours."
    ]


@pytest.mark.parametrize("table", ["session", "profile", "run", "event", "content"])
@pytest.mark.parametrize("how", ["missing", "extra", "renamed"])
@pytest.mark.parametrize("harness", ["sqlite", "postgres"], indirect=True)
async def test_tables_that_are_not_as_we_made_them_are_refused_by_name(harness: Any, table: str, how: str) -> None:
    store = await harness.open()
    await a_session(store)
    await store.aclose()
    column = {"session": "held", "profile": "title", "run": "error", "event": "body", "content": "encoding"}[table]
    await harness.damage(
        {
            "missing": f"ALTER TABLE {table} RENAME TO elsewhere",
            "extra": f"ALTER TABLE {table} ADD COLUMN extra TEXT",
            "renamed": f"ALTER TABLE {table} RENAME COLUMN {column} TO other",
        }[how]
    )
    for migrating in (True, False):
        with pytest.raises(StoreUnusable, match=rf"\b{table}\b") as refused:
            await harness.open(migrate=migrating)
        assert not refused.value.retryable


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TABLE {0}.session (id int)",
        "CREATE TABLE {0}.schema_version (id int, v text)",
        "CREATE TABLE {0}.schema_version (version text); INSERT INTO {0}.schema_version VALUES ('v1.2')",
        "CREATE TABLE {0}.schema_version (version bigint); INSERT INTO {0}.schema_version VALUES (0), (1)",
    ],
)
async def test_another_programs_tables_in_the_schema_are_refused_and_left_alone(postgres: Postgres, made: str) -> None:
    schema = f"t_{new_id().replace('-', '_')}"
    connection = await asyncpg.connect(postgres.url)
    try:
        await connection.execute(f"CREATE SCHEMA {schema}; {made.format(schema)}")
        with pytest.raises(StoreUnusable) as refused:
            await open_store(postgres.url, schema=schema, pool_size=1)
        assert not refused.value.retryable
        tables = await connection.fetch("SELECT relname FROM pg_class WHERE relnamespace = $1::regnamespace", schema)
        assert len([name for (name,) in tables if name in {"session", "schema_version", "profile"}]) == 1
    finally:
        await connection.close()


async def test_a_read_only_database_and_a_role_without_rights_are_refused(postgres: Postgres) -> None:
    schema = f"t_{new_id().replace('-', '_')}"
    async with open_store(postgres.url, schema=schema, pool_size=1) as store:
        await a_session(store, "s")
    settings = {"default_transaction_read_only": "on"}
    async with open_store(postgres.url, schema=schema, pool_size=1, server_settings=settings) as store:
        assert await store.exists("s")
        with pytest.raises(StoreUnusable, match="read-only"):
            await store.create("t")
    connection = await asyncpg.connect(postgres.url)
    try:
        await connection.execute(f"CREATE ROLE {schema} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {schema}")
    finally:
        await connection.close()
    with pytest.raises(StoreUnusable, match="rights"):
        await open_store(postgres.url, schema=schema, pool_size=1, user=schema)
