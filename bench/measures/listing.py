"""A page of the session list costs the same however many sessions there are."""

from pathlib import Path

import apsw

from bench.harness import Measure, Scene, Stopwatch, cpu
from bench.workload import WarmSession, messages
from tenuto import Store, open_store

_PAGE = 50
_BATCH = 10


async def page(scene: Scene) -> float:
    """Return a list of 50 summaries among 100,000 sessions against one among 100."""
    many, few = scene.url("many"), scene.url("few")
    await _fill(many, scene.folder / "many.db", 100_000)
    await _fill(few, scene.folder / "few.db", 100)
    async with open_store(many) as many_store, open_store(few) as few_store:

        async def among_many() -> float:
            return await _time(many_store)

        async def among_few() -> float:
            return await _time(few_store)

        return await scene.ratio(among_many, among_few, rounds=40)


async def _time(store: Store) -> float:
    with Stopwatch(cpu) as watch:
        for _ in range(_BATCH):
            found = await store.list(limit=_PAGE)
    assert len(found) == _PAGE
    return watch.seconds / _BATCH


async def _fill(url: str, path: Path, sessions: int) -> None:
    async with open_store(url, synchronous="OFF") as store:
        session = await WarmSession.begin(store)
        await session.turn(messages())
    connection = apsw.Connection(str(path))
    with connection:
        _multiply(connection, "session", {"sid": "n", "family": "n", "session_id": "'bulk-' || n"}, sessions)
        _multiply(connection, "profile", {"session": "n"}, sessions)
    connection.close()


def _multiply(connection: apsw.Connection, table: str, changed: dict[str, str], rows: int) -> None:
    """Copy the first row of a table under other keys until there are `rows` of it."""
    columns = [str(column[1]) for column in connection.execute(f"PRAGMA table_info({table})")]
    values = ", ".join(changed.get(column, f"first.{column}") for column in columns)
    connection.execute(
        f"""
        WITH RECURSIVE number (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM number WHERE n < {rows})
        INSERT INTO {table} SELECT {values} FROM number, (SELECT * FROM {table} LIMIT 1) first
        """
    )


MEASURES = (Measure(name="list of 50 summaries among 100,000 sessions against among 100", unit="x", run=page),)
