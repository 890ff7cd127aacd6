"""Many sessions that commit at once share the disk's syncs."""

import asyncio

from bench.counters import counting_syncs
from bench.harness import Measure, Scene, Stopwatch, wall
from bench.workload import WarmSession, messages
from tenuto import Store, open_store

_SESSIONS = 64


async def fsyncs(scene: Scene) -> float:
    """Return the mean number of syncs of a round in which every session does one turn."""
    rounds = 20
    with counting_syncs() as counter:
        async with open_store(scene.url(), vfs=counter.name) as store:
            crowd = await _crowd(store)
            await _one_turn_each(crowd)
            before = counter.syncs
            for _ in scene.rounds(rounds):
                await _one_turn_each(crowd)
            return (counter.syncs - before) / rounds


async def throughput(scene: Scene) -> float:
    """Return how many times as many turns per second the crowd does as one session alone."""
    turns = 32
    async with open_store(scene.url()) as store:
        crowd = await _crowd(store)
        alone = await WarmSession.begin(store)

        async def one() -> float:
            work = [messages() for _ in range(turns)]
            with Stopwatch(wall) as watch:
                for items in work:
                    await alone.turn(items)
            return watch.seconds / turns

        async def many() -> float:
            return await _one_turn_each(crowd) / _SESSIONS

        return await scene.ratio(one, many, rounds=20)


async def _crowd(store: Store) -> list[WarmSession]:
    return [await WarmSession.begin(store) for _ in range(_SESSIONS)]


async def _one_turn_each(crowd: list[WarmSession]) -> float:
    work = [(session, messages()) for session in crowd]
    with Stopwatch(wall) as watch:
        await asyncio.gather(*(session.turn(items) for session, items in work))
    return watch.seconds


MEASURES = (
    Measure(name="64 sessions at once, SQLite: fsyncs for 64 turns", unit="fsyncs", run=fsyncs),
    Measure(name="64 sessions against one, SQLite FULL: turns per second", unit="x", run=throughput),
)
