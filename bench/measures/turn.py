"""The warm turn on SQLite: what it costs the disk, SQLite, the processor, and the waiting caller."""

from collections.abc import Awaitable, Callable

from bench.floors import AwaitedSqliteFloor, SqliteFloor
from bench.harness import Clock, Measure, Scene, Stopwatch, cpu, wall
from bench.turn_cost import statements_per_turn, syncs_per_turn
from bench.workload import Messages, WarmSession, document, messages
from tenuto import open_store


async def fsyncs(scene: Scene) -> float:
    """Return the mean number of syncs, checkpoints of the WAL included."""
    return await syncs_per_turn(scene, WarmSession.begin)


async def statements(scene: Scene) -> float:
    """Return the mean number of SQL statements, BEGIN and COMMIT included."""
    return await statements_per_turn(scene, WarmSession.begin)


async def processor(scene: Scene) -> float:
    """Return the CPU time of all threads against the floor's, without syncs."""
    # A batch is longer than the way to the next checkpoint of the WAL, so that each has its share of them.
    return await _against_floor(scene, cpu, "OFF", batch=50, rounds=150)


async def waiting(scene: Scene) -> float:
    """Return the time to a durable turn against the floor's."""
    return await _against_floor(scene, wall, "FULL", batch=1, rounds=400)


async def processor_unawaited(scene: Scene) -> float:
    """Return the CPU time against the same statements on the caller's own thread, which then stands still."""
    floor = SqliteFloor(scene.folder / "floor.db", synchronous="OFF")

    async def raw(items: Messages, number: int) -> None:
        floor.turn(items, document(number))

    try:
        return await _compare(scene, cpu, "OFF", raw, batch=150, rounds=25)
    finally:
        floor.close()


async def _against_floor(scene: Scene, clock: Clock, synchronous: str, *, batch: int, rounds: int) -> float:
    floor = AwaitedSqliteFloor(scene.folder / "floor.db", synchronous=synchronous)

    async def raw(items: Messages, number: int) -> None:
        await floor.turn(items, document(number))

    try:
        return await _compare(scene, clock, synchronous, raw, batch=batch, rounds=rounds)
    finally:
        floor.close()


async def _compare(
    scene: Scene,
    clock: Clock,
    synchronous: str,
    floor: Callable[[Messages, int], Awaitable[None]],
    *,
    batch: int,
    rounds: int,
) -> float:
    async with open_store(scene.url(), synchronous=synchronous) as store:
        session = await WarmSession.begin(store)

        async def ours() -> float:
            work = [messages() for _ in range(batch)]
            with Stopwatch(clock) as watch:
                for items in work:
                    await session.turn(items)
            return watch.seconds / batch

        async def raw() -> float:
            work = [messages() for _ in range(batch)]
            with Stopwatch(clock) as watch:
                for number, items in enumerate(work):
                    await floor(items, number)
            return watch.seconds / batch

        return await scene.ratio(ours, raw, rounds=rounds)


MEASURES = (
    Measure(name="warm turn, SQLite: fsyncs", unit="per turn", run=fsyncs),
    Measure(name="warm turn, SQLite: statements", unit="per turn", run=statements),
    Measure(name="warm turn, SQLite: CPU against the raw floor", unit="x", run=processor),
    Measure(name="warm turn, SQLite: CPU against the floor's statements unawaited", unit="x", run=processor_unawaited),
    Measure(name="warm turn, SQLite FULL: wall against the raw floor", unit="x", run=waiting),
)
