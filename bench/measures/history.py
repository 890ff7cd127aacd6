"""A turn costs the same however long the history behind it, and however often it was forked."""

from bench.harness import Measure, Scene, Stopwatch, cpu
from bench.workload import WarmSession, a_key, messages
from tenuto import Store, open_store

_BATCH = 100
_TURNS_EACH = 10
_ROUNDS = 25


async def entries(scene: Scene) -> float:
    """Return the warm turn at 10,000 entries against the one at 10."""
    async with (
        open_store(scene.url("long"), synchronous="OFF") as long_store,
        open_store(scene.url("short"), synchronous="OFF") as short_store,
    ):
        long = await WarmSession.begin(long_store, entries=10_000)

        async def at_ten_thousand() -> float:
            return await _time(long, _BATCH)

        async def at_ten() -> float:
            # A session that has grown is not at ten any more: each does a few turns.
            fresh = [await WarmSession.begin(short_store, entries=10) for _ in range(_BATCH // _TURNS_EACH)]
            return sum([await _time(session, _TURNS_EACH) for session in fresh]) / len(fresh)

        return await scene.ratio(at_ten_thousand, at_ten, rounds=_ROUNDS)


async def depth(scene: Scene) -> float:
    """Return the warm turn of the 200th fork in a chain against that of the first."""
    async with (
        open_store(scene.url("deep"), synchronous="OFF") as deep_store,
        open_store(scene.url("flat"), synchronous="OFF") as flat_store,
    ):
        deep, flat = await _forked(deep_store, 200), await _forked(flat_store, 1)

        async def at_two_hundred() -> float:
            return await _time(deep, _BATCH)

        async def at_one() -> float:
            return await _time(flat, _BATCH)

        return await scene.ratio(at_two_hundred, at_one, rounds=_ROUNDS)


async def _forked(store: Store, depth: int) -> WarmSession:
    session = await WarmSession.begin(store, entries=10)
    for _ in range(depth):
        target = a_key()
        await store.fork(session.key, target)
        session = await WarmSession.take(store, target)
        # A fork that adds no entries would not lengthen the lineage.
        await session.turn(messages())
    return session


async def _time(session: WarmSession, turns: int) -> float:
    work = [messages() for _ in range(turns)]
    with Stopwatch(cpu) as watch:
        for items in work:
            await session.turn(items)
    return watch.seconds / turns


MEASURES = (
    Measure(name="warm turn at 10,000 entries against at 10", unit="x", run=entries),
    Measure(name="warm turn at lineage depth 200 against 1", unit="x", run=depth),
)
