"""The cold load: a whole session from a store that was just opened."""

from pathlib import Path

from bench.floors import SqliteFloor, read_sqlite
from bench.harness import Measure, Scene, Stopwatch, wall
from bench.workload import WarmSession, document, messages
from tenuto import open_store

_ENTRIES = 10_000


async def cold(scene: Scene) -> float:
    """Return the load of 10,000 entries against reading the same rows and `json.loads`."""
    raw_file = scene.folder / "floor.db"
    _fill(raw_file)
    async with open_store(scene.url(), synchronous="OFF") as store:
        key = (await WarmSession.begin(store, entries=_ENTRIES)).key

    async def ours() -> float:
        async with open_store(scene.url()) as store:
            with Stopwatch(wall) as watch:
                record = await store.load(key)
        assert record is not None
        assert len(record.state["messages"]) == _ENTRIES
        return watch.seconds

    async def raw() -> float:
        with Stopwatch(wall) as watch:
            found = read_sqlite(raw_file)
        assert len(found) == _ENTRIES
        return watch.seconds

    return await scene.ratio(ours, raw, rounds=25)


def _fill(path: Path) -> None:
    floor = SqliteFloor(path, synchronous="OFF")
    for number in range(_ENTRIES // 2):
        floor.turn(messages(), document(number))
    floor.close()


MEASURES = (Measure(name="cold load of 10,000 entries against raw read + json.loads", unit="x", run=cold),)
