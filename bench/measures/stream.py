"""A reply that is streamed: what each chunk costs."""

import asyncio

from bench.harness import Measure, Scene, Stopwatch, cpu
from bench.talk import Talk
from bench.workload import WarmSession, messages
from tenuto import open_store
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn

_CHUNKS = 10_000
_COMMITS = 150
_ROUNDS = 7

_spent: list[float] = []
"""What the chunks of each turn cost, in seconds."""


@program
async def streams(turn: Turn) -> None:
    """Emit chunks as a model's reply brings them: between two of them the event loop goes round."""
    with Stopwatch(cpu) as idle:
        for _ in range(_CHUNKS):
            await asyncio.sleep(0)
    with Stopwatch(cpu) as watch:
        for number in range(_CHUNKS):
            turn.emit(f"word {number} ")
            await asyncio.sleep(0)
        await turn.save()
    _spent.append(watch.seconds - idle.seconds)


async def chunks(scene: Scene) -> float:
    """Return the CPU time of a chunk, from `emit` until it is stored, against that of one commit, without syncs."""
    async with (
        open_store(scene.url("runtime"), synchronous="OFF") as runtime_store,
        open_store(scene.url("store"), synchronous="OFF") as bare_store,
    ):
        talk = await Talk.begin(runtime_store, streams)
        bare = await WarmSession.begin(bare_store)

        async def chunk() -> float:
            await talk.turn(messages())
            return _spent.pop() / _CHUNKS

        async def commit() -> float:
            work = [messages() for _ in range(_COMMITS)]
            with Stopwatch(cpu) as watch:
                for items in work:
                    await bare.turn(items)
            return watch.seconds / _COMMITS

        return await scene.ratio(chunk, commit, rounds=_ROUNDS)


MEASURES = (Measure(name="10,000 streamed chunks: CPU of one against a commit", unit="x", run=chunks),)
