"""Whatever a driver raises, at whatever statement, a caller sees one of our errors, and the right one is blamed."""

import asyncio
import errno
import inspect
import os
import random
import resource
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from tenuto import Store, open_store
from tenuto.errors import (
    InvalidInput,
    StoreClosed,
    StoreContended,
    StoredDataCorrupt,
    StoreError,
    StoreFull,
    StoreMisused,
    StoreUnavailable,
    StoreUnusable,
    TenutoError,
    UpkeepFailed,
)
from tenuto.ids import new_id
from tenuto.model.event import NewEvent
from tenuto.model.input import InputKind, NewInput
from tenuto.store.backends.postgres.faults import translate as translate_postgres
from tenuto.store.backends.sqlite import connection as sqlite_connection
from tenuto.store.backends.sqlite.backend import SqliteBackend
from tenuto.testing.factories import a_commit, a_save, a_session, an_owner
from tests.servers import Postgres

Verb = Callable[[Store], Awaitable[object]]


async def _watch(store: Store) -> None:
    async with store.backend.watch(a_commit("s").key):
        pass


VERBS: dict[str, Verb] = {
    "create": lambda store: store.create(f"new-{new_id()}", state={"a": 1}),
    "commit": lambda store: store.commit(a_save("s", "b", events=(NewEvent(type="e"),))),
    "fork": lambda store: store.fork("s", f"fork-{new_id()}"),
    "load": lambda store: store.load("s"),
    "head": lambda store: store.head("s"),
    "stamp": lambda store: store.stamp("s"),
    "list": lambda store: store.list(),
    "moment": lambda store: store.moment(),
    "dump": lambda store: store.dump(),
    "acquire": lambda store: store.lanes.acquire(f"lane-{new_id()}", an_owner()),
    "renew": lambda store: store.lanes.renew([]),
    "enqueue": lambda store: store.inbox.enqueue("s", NewInput(kind=InputKind.MESSAGE, body=1)),
    "gc": lambda store: store.upkeep.gc(grace=0),
    "expire": lambda store: store.upkeep.expire(),
    "vacuum": lambda store: store.upkeep.vacuum(),
    "delete": lambda store: store.delete(f"nobody-{new_id()}"),
    "watch": _watch,
}


async def _only_ours(store: Store, what: str, *names: str) -> None:
    """Call every verb, or these; each succeeds, or raises an error of ours that is not blamed on the wrong one."""
    for name in names or VERBS:
        verb = VERBS[name]
        try:
            async with asyncio.timeout(8):
                await verb(store)
        except TenutoError as error:
            assert str(error), (what, name)
            assert "operation id" not in str(error), (what, name)
        except Exception as error:
            raise AssertionError(f"{name} raised {error!r} for {what}") from error


def _classes(root: type[BaseException]) -> list[type[BaseException]]:
    found = [root]
    for each in root.__subclasses__():
        found += _classes(each)
    return list(dict.fromkeys(found))


APSW = [kind for kind in vars(apsw).values() if inspect.isclass(kind) and issubclass(kind, apsw.Error)]
OF_PYTHON = [TypeError, OverflowError, UnicodeDecodeError, UnicodeEncodeError, ValueError]


def _raised(kind: type[BaseException]) -> BaseException:
    if kind is UnicodeDecodeError:
        return UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    if kind is UnicodeEncodeError:
        return UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
    return kind("injected")


def _is_of(statement: str, kind: str) -> bool:
    return statement.lstrip().upper().startswith(kind)


class FaultyFile(apsw.Connection):
    """A connection whose statements of one kind fail."""

    fails: BaseException | None = None
    kind = ""

    def execute(self, statements: str, *rest: Any, **named: Any) -> Any:
        fault = FaultyFile.fails
        # Python's own errors are about the values given.
        if fault is not None and _is_of(statements, FaultyFile.kind) and (isinstance(fault, apsw.Error) or rest):
            raise fault
        return super().execute(statements, *rest, **named)

    def pragma(self, name: str, *rest: Any, **named: Any) -> Any:
        if FaultyFile.fails is not None and FaultyFile.kind == "PRAGMA":
            raise FaultyFile.fails
        return super().pragma(name, *rest, **named)


@pytest.mark.parametrize("kind", ["BEGIN", "COMMIT", "SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "PRAGMA"])
async def test_no_error_of_apsw_gets_through_at_any_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(apsw, "Connection", FaultyFile)
    monkeypatch.setattr(sqlite_connection, "_CONFIGURE_SECONDS", 0.01)
    monkeypatch.setattr(FaultyFile, "kind", kind)
    assert len(APSW) > 35
    async with open_store(f"sqlite:///{tmp_path}/test.db", lock_timeout=0.01, synchronous="OFF") as store:
        await a_session(store, "s", "a")
        for error in [*APSW, *(OF_PYTHON if kind not in {"BEGIN", "COMMIT", "PRAGMA"} else [])]:
            FaultyFile.fails = _raised(error)
            try:
                await _only_ours(store, f"{error.__name__} at {kind}")
            finally:
                FaultyFile.fails = None
        assert await store.exists("s"), "the store is as good as before"
        await store.commit(a_save("s", "c"))


class FaultyServer(asyncpg.Connection):
    """A connection whose statements of one kind fail."""

    fails: BaseException | None = None
    kind = ""

    def _hit(self, query: str) -> None:
        if FaultyServer.fails is not None and _is_of(query, FaultyServer.kind):
            raise FaultyServer.fails

    async def fetch(self, query: str, *rest: Any, **named: Any) -> Any:
        self._hit(query)
        return await super().fetch(query, *rest, **named)

    async def fetchval(self, query: str, *rest: Any, **named: Any) -> Any:
        self._hit(query)
        return await super().fetchval(query, *rest, **named)

    async def execute(self, query: str, *rest: Any, **named: Any) -> Any:
        self._hit(query)
        return await super().execute(query, *rest, **named)


SERVER = [
    *_classes(asyncpg.PostgresError),
    *_classes(asyncpg.InterfaceError),
    *_classes(asyncpg.InternalClientError),
    OSError,
    TimeoutError,
    ConnectionResetError,
    EOFError,
    UnicodeDecodeError,
    UnicodeEncodeError,
    OverflowError,
]


@pytest.mark.parametrize("kind", ["BEGIN", "COMMIT", "SELECT", "WITH"])
async def test_no_error_of_asyncpg_gets_through_at_any_statement(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Every class of SQLSTATEs at every kind of statement; of each class, all states are told apart below."""
    monkeypatch.setattr(FaultyServer, "kind", kind)
    schema = f"t_{new_id().replace('-', '_')}"
    chosen = {(getattr(each, "sqlstate", None) or each.__name__)[:2]: each for each in reversed(SERVER)}
    async with open_store(postgres.url, schema=schema, pool_size=2, connection_class=FaultyServer) as store:
        await a_session(store, "s", "a")
        for error in chosen.values():
            FaultyServer.fails = _raised(error)
            try:
                await _only_ours(store, f"{error.__name__} at {kind}", "commit", "load", "list", "stamp", "gc")
            finally:
                FaultyServer.fails = None
        assert await store.exists("s"), "the store is as good as before"
        await store.commit(a_save("s", "c"))


def test_every_class_of_asyncpg_has_its_error() -> None:
    assert len(SERVER) > 250
    for kind in SERVER:
        ours = translate_postgres(_raised(kind))
        shown = ours.as_error() if hasattr(ours, "as_error") else ours
        assert isinstance(shown, TenutoError), kind
        if (getattr(kind, "sqlstate", None) or "")[:2] in {"22", "23", "28", "3D", "3F", "42", "54"}:
            assert not shown.retryable, kind


async def _blame(store: Store, error: BaseException) -> TenutoError:
    def probe(name: str) -> None:
        if name == "life_of":
            raise error

    backend: Any = store.backend
    backend.probe = probe
    try:
        with pytest.raises(TenutoError) as raised:
            await store.life("s")
    finally:
        backend.probe = None
    return raised.value


@pytest.mark.parametrize(
    ("given", "ours", "retryable"),
    [
        (apsw.SQLError("no such table: session"), StoreUnusable, False),
        (apsw.ReadOnlyError("attempt to write a readonly database"), StoreUnusable, False),
        (apsw.CorruptError("malformed"), StoredDataCorrupt, False),
        (apsw.BusyError("locked"), StoreContended, True),
        (apsw.FullError("full"), StoreFull, True),
        (apsw.IOError("disk"), StoreUnavailable, True),
        (apsw.TooBigError("too big"), InvalidInput, False),
        (apsw.MismatchError("type"), InvalidInput, False),
        (apsw.ConnectionClosedError("closed"), StoreClosed, False),
        (apsw.ThreadingViolationError("threads"), StoreMisused, False),
    ],
)
async def test_who_is_to_blame_on_sqlite(
    tmp_path: Path, given: BaseException, ours: type[TenutoError], retryable: bool
) -> None:
    async with open_store(f"sqlite:///{tmp_path}/test.db", lock_timeout=0.01) as store:
        error = await _blame(store, given)
    assert type(error) is ours
    assert error.retryable is retryable


@pytest.mark.parametrize(
    ("kind", "ours", "retryable"),
    [
        (asyncpg.UndefinedTableError, StoreUnusable, False),
        (asyncpg.UndefinedColumnError, StoreUnusable, False),
        (asyncpg.DuplicateTableError, StoreUnusable, False),
        (asyncpg.InsufficientPrivilegeError, StoreUnusable, False),
        (asyncpg.ReadOnlySQLTransactionError, StoreUnusable, False),
        (asyncpg.InvalidPasswordError, StoreUnusable, False),
        (asyncpg.ProgramLimitExceededError, InvalidInput, False),
        (asyncpg.CharacterNotInRepertoireError, InvalidInput, False),
        (asyncpg.NotNullViolationError, InvalidInput, False),
        (asyncpg.exceptions.DataError, InvalidInput, False),
        (asyncpg.DataCorruptedError, StoredDataCorrupt, False),
        (UnicodeDecodeError, StoredDataCorrupt, False),
        (asyncpg.DiskFullError, StoreFull, True),
        (asyncpg.TooManyConnectionsError, StoreUnavailable, True),
        (asyncpg.AdminShutdownError, StoreUnavailable, True),
        (asyncpg.ConnectionDoesNotExistError, StoreUnavailable, True),
        (asyncpg.SerializationError, StoreContended, True),
        (asyncpg.LockNotAvailableError, StoreContended, True),
        (asyncpg.QueryCanceledError, StoreContended, True),
        (asyncpg.InvalidCachedStatementError, StoreContended, True),
    ],
)
def test_who_is_to_blame_on_postgres(kind: type[BaseException], ours: type[TenutoError], retryable: bool) -> None:
    error = translate_postgres(_raised(kind))
    assert type(error) is ours
    assert isinstance(error, TenutoError)
    assert error.retryable is retryable


def test_an_error_without_a_text_still_says_what_it_was() -> None:
    assert "TimeoutError" in str(translate_postgres(TimeoutError()))
    assert "EOFError" in str(translate_postgres(EOFError()))


@pytest.mark.parametrize("harness", ["sqlite", "postgres"], indirect=True)
async def test_an_id_that_another_session_has_used_is_named_and_not_worth_repeating(harness: Any) -> None:
    store = await harness.open()
    await a_session(store, "one")
    await a_session(store, "two")
    await store.inbox.enqueue("one", NewInput(kind=InputKind.MESSAGE, body=1, input_id="taken"))
    with pytest.raises(TenutoError, match="input") as refused:
        await store.inbox.enqueue("two", NewInput(kind=InputKind.MESSAGE, body=1, input_id="taken"))
    assert not refused.value.retryable


@pytest.mark.parametrize(
    ("given", "said", "retryable"),
    [
        (apsw.BusyError("locked"), "busy for too long", True),
        (apsw.SQLError("no such table: event"), "does not help before", False),
    ],
)
async def test_upkeep_says_why_it_stopped_and_whether_to_run_it_again(
    tmp_path: Path, given: BaseException, said: str, retryable: bool
) -> None:
    async with open_store(f"sqlite:///{tmp_path}/test.db") as store:

        def probe(name: str) -> None:
            if name == "sweep_events":
                raise given

        backend: Any = store.backend
        backend.probe = probe
        with pytest.raises(UpkeepFailed, match=said) as stopped:
            await store.upkeep.gc()
        assert stopped.value.retryable is retryable


@contextmanager
def _few_descriptors() -> Iterator[None]:
    """Leave this process without a descriptor to open a file with."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, hard))
    taken: list[int] = []
    try:
        while True:
            try:
                taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError as error:
                assert error.errno == errno.EMFILE
                break
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_without_descriptors_a_file_is_unavailable_for_now(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/test.db") as store:
        await a_session(store, "s", "a")
        with _few_descriptors():
            with pytest.raises(StoreUnavailable, match="descriptors") as failed:
                await store.load("s")
            assert failed.value.retryable
            with pytest.raises(StoreUnavailable, match="descriptors"):
                await open_store(f"sqlite:///{tmp_path}/other.db")
        assert await store.load("s")


async def test_a_group_that_finds_the_file_locked_waits_once_and_not_one_by_one(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/test.db", lock_timeout=0.2) as store:
        await a_session(store, "s", "a")
        other = apsw.Connection(f"{tmp_path}/test.db")
        try:
            other.execute("BEGIN IMMEDIATE")
            async with asyncio.timeout(5):
                calls = [store.commit(a_commit("s", events=(NewEvent(type="e"),))) for _ in range(50)]
                found = await asyncio.gather(*calls, return_exceptions=True)
        finally:
            other.close()
        assert {type(each) for each in found} == {StoreContended}


@pytest.mark.parametrize("seed", range(60))
async def test_a_damaged_file_is_told_of_in_our_words(tmp_path: Path, seed: int, whole_file: bytes) -> None:
    chance = random.Random(seed)
    content = bytearray(whole_file)
    for _ in range(chance.choice([1, 5, 40, 400])):
        at = chance.randrange(100 if seed % 3 else 0, len(content))
        content[at : at + chance.choice([1, 4, 64])] = chance.randbytes(1)
    if seed % 7 == 0:
        del content[chance.randrange(len(content) // 4, len(content)) :]
    path = tmp_path / "damaged.db"
    path.write_bytes(content)
    try:
        store = await open_store(f"sqlite:///{path}", synchronous="OFF", lock_timeout=0.05)
    except TenutoError as error:
        assert isinstance(error, StoreError)
        assert not error.retryable
        return
    assert isinstance(store.backend, SqliteBackend)
    try:
        await _only_ours(store, f"seed {seed}")
    finally:
        with suppress(TenutoError):
            await store.aclose()


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "whole.db"

    async def fill() -> None:
        async with open_store(f"sqlite:///{path}", synchronous="OFF") as store:
            await a_session(store, "s", *(f"message {n} " * 20 for n in range(40)), state={"big": "b" * 6000})
            for n in range(30):
                await store.create(f"g{n}", state={"m": [{"c": "x" * 200}]}, logs={"m"})
                await store.inbox.enqueue(f"g{n}", NewInput(kind=InputKind.MESSAGE, body="hello"))

    asyncio.run(fill())
    return path.read_bytes()
