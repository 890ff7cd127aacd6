"""Sessions that are open and idle: what each holds in memory."""

import gc
import tracemalloc

from bench.harness import Measure, Scene
from tenuto import open_store
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tenuto.writing.lru import DEFAULT_BYTES

_HANDLES = 1_000


@program
async def greets(turn: Turn) -> None:
    """Say hello."""
    turn.append({"role": "assistant", "content": "hello"})


async def handle(scene: Scene) -> float:
    """Return the KiB of a handle whose session was talked to and is idle again; no copies are kept of sessions."""
    return await _held(scene, cache_bytes=0)


async def warm(scene: Scene) -> float:
    """Return the same with the copy of a short conversation, of which a runtime keeps those used last."""
    return await _held(scene, cache_bytes=DEFAULT_BYTES)


async def _held(scene: Scene, *, cache_bytes: int) -> float:
    async with (
        open_store(scene.url(), synchronous="OFF") as store,
        SessionRuntime(store, [greets], cache_bytes=cache_bytes) as runtime,
    ):
        await runtime.create("greets", session_id="first")
        await runtime.send("first", "hi")
        tracemalloc.start()
        try:
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            handles = []
            for number in scene.rounds(_HANDLES):
                handles.append(runtime.session(f"session-{number}"))
                await runtime.create("greets", session_id=handles[-1].session_id)
                await handles[-1].send("hi")
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        return (after - before) / len(handles) / 1024


MEASURES = (
    Measure(name="idle open session: memory", unit="KiB", run=handle),
    Measure(name="idle open session: memory with its warm copy", unit="KiB", run=warm),
)
