"""A turn through the session runtime: what it asks of the disk and the processor, alone and in a crowd."""

import asyncio

from bench.counters import counting_syncs
from bench.harness import Measure, Scene, Stopwatch, cpu
from bench.talk import Talk
from bench.turn_cost import statements_per_turn, syncs_per_turn
from bench.workload import WarmSession, messages
from tenuto import open_store

_BATCH = 100
_ROUNDS = 25
_CROWD = 64
_TURNS_EACH = 50


async def fsyncs(scene: Scene) -> float:
    """Return the mean number of syncs of a turn, checkpoints of the WAL included."""
    return await syncs_per_turn(scene, Talk.begin)


async def statements(scene: Scene) -> float:
    """Return the mean number of SQL statements of a turn, reads, BEGIN and COMMIT included."""
    return await statements_per_turn(scene, Talk.begin)


async def processor(scene: Scene) -> float:
    """Return the CPU time of a turn against that of two of the store's warm turns, without syncs."""
    async with (
        open_store(scene.url("runtime"), synchronous="OFF") as runtime_store,
        open_store(scene.url("store"), synchronous="OFF") as bare_store,
    ):
        talk = await Talk.begin(runtime_store)
        bare = await WarmSession.begin(bare_store)

        async def ours() -> float:
            work = [messages() for _ in range(_BATCH)]
            with Stopwatch(cpu) as watch:
                for items in work:
                    await talk.turn(items)
            return watch.seconds / _BATCH

        async def two_turns() -> float:
            work = [messages() for _ in range(2 * _BATCH)]
            with Stopwatch(cpu) as watch:
                for items in work:
                    await bare.turn(items)
            return watch.seconds / _BATCH

        return await scene.ratio(ours, two_turns, rounds=_ROUNDS)


async def crowd(scene: Scene) -> float:
    """Return the mean number of syncs of a turn when many sessions talk at once, each turn after turn."""
    with counting_syncs() as counter:
        async with open_store(scene.url(), vfs=counter.name) as store:
            first = await Talk.begin(store)
            talks = [first, *[await first.another() for _ in range(_CROWD - 1)]]
            await asyncio.gather(*(talk.turn(messages()) for talk in talks))

            async def converse(talk: Talk) -> None:
                for _ in range(_TURNS_EACH):
                    await talk.turn(messages())

            before = counter.syncs
            await asyncio.gather(*map(converse, talks))
            return (counter.syncs - before) / (_CROWD * _TURNS_EACH)


MEASURES = (
    Measure(name="runtime turn, SQLite: fsyncs", unit="per turn", run=fsyncs),
    Measure(name="runtime turn, SQLite: statements", unit="per turn", run=statements),
    Measure(name="runtime turn, SQLite: CPU against two warm turns", unit="x", run=processor),
    Measure(name="64 sessions through one runtime, SQLite: fsyncs", unit="per turn", run=crowd),
)
