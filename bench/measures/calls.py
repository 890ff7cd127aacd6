"""Calls to the outside from a turn: what their journal costs, in time and in the file."""

import json
from typing import Any

from bench.harness import Measure, Scene, Stopwatch, cpu, wall
from bench.talk import Talk
from bench.workload import WarmSession, message, messages
from tenuto import open_store
from tenuto.codec import JSON
from tenuto.runtime.calls.steps import begin_step, finish_step
from tenuto.runtime.program.program import Program, program
from tenuto.runtime.program.turn import Turn, context_of

_CALLS = 100
_ROUNDS = 50

_results: list[dict[str, Any]] = []
"""What the calls bring back."""
_spent: list[float] = []
"""What the calls of each turn took, in seconds."""


async def _outside() -> JSON:
    return _results.pop()


@program
async def tools(turn: Turn) -> None:
    """Call a tool again and again."""
    with Stopwatch(wall) as watch:
        for number in range(_CALLS):
            await turn.effect(f"tool {number}", _outside, {"number": number})
    _spent.append(watch.seconds)


@program
async def models(turn: Turn) -> None:
    """Call a model repeatedly, each time in its own step."""
    with Stopwatch(wall) as watch:
        for number in range(_CALLS):
            await begin_step(context_of(turn))
            turn.append(await turn.effect("model", _outside, {"number": number}, kind="model"))
            await finish_step(context_of(turn))
    _spent.append(watch.seconds)


@program
async def asks(turn: Turn) -> None:
    """Reply what a model says, chunk by chunk."""

    async def ask() -> JSON:
        reply = _results.pop()
        for word in reply["content"].split(" "):
            turn.emit(word)
        return reply

    turn.append(await turn.effect("model", ask, {"upto": len(turn.messages)}, kind="model"))


@program
async def named(turn: Turn) -> None:
    """Reply what a model says, by an effect that says what it depends on."""
    turn.append(await turn.effect("model", _outside, {"upto": len(turn.messages)}, kind="model"))


@program
async def counted(turn: Turn) -> None:
    """Reply what a model says, by a model call that counts and records that by itself."""
    turn.append(await turn.model(_outside))


async def tool(scene: Scene) -> float:
    """Return the time of a tool's effect, durable before and after the call, against that of a warm turn."""
    return await _against_turn(scene, tools)


async def model(scene: Scene) -> float:
    """Return the time of a step with a model's effect against that of a warm turn."""
    return await _against_turn(scene, models)


async def model_call(scene: Scene) -> float:
    """Return the CPU time of a turn with `turn.model` against one with `turn.effect`, without syncs."""
    async with (
        open_store(scene.url("model"), synchronous="OFF") as one,
        open_store(scene.url("effect"), synchronous="OFF") as other,
    ):
        talks = await Talk.begin(one, counted), await Talk.begin(other, named)

        async def took(talk: Talk) -> float:
            work = [messages() for _ in range(_CALLS)]
            _results[:] = [message("assistant") for _ in range(_CALLS)]
            with Stopwatch(cpu) as watch:
                for items in work:
                    await talk.turn(items)
            return watch.seconds / _CALLS

        return await scene.ratio(lambda: took(talks[0]), lambda: took(talks[1]), rounds=_ROUNDS)


async def _against_turn(scene: Scene, calls: Program[Any]) -> float:
    async with open_store(scene.url("runtime")) as runtime_store, open_store(scene.url("store")) as bare_store:
        talk = await Talk.begin(runtime_store, calls, steps=_CALLS)
        bare = await WarmSession.begin(bare_store)

        async def effect() -> float:
            _results[:] = [message("assistant") for _ in range(_CALLS)]
            await talk.turn(messages())
            return _spent.pop() / _CALLS

        async def turn() -> float:
            work = [messages() for _ in range(_CALLS)]
            with Stopwatch(wall) as watch:
                for items in work:
                    await bare.turn(items)
            return watch.seconds / _CALLS

        return await scene.ratio(effect, turn, rounds=_ROUNDS)


async def size(scene: Scene) -> float:
    """Return the closed file after 500 turns with a model's effect each, chunks pruned, against its messages' JSON."""
    said: list[dict[str, Any]] = []
    async with open_store(scene.url(), synchronous="OFF") as store:
        talk = await Talk.begin(store, asks)
        for _ in scene.rounds(500):
            items = messages()
            said.extend(items)
            _results[:] = items[1:]
            await talk.turn(items)
        await store.upkeep.prune(chunks_older_than=0)
        while (await store.upkeep.vacuum()).pages_left:
            pass
    file, raw = (scene.folder / "store.db").stat().st_size, len(json.dumps(said, separators=(",", ":")))
    scene.note(f"{file / 1024:,.0f} KiB against {raw / 1024:,.0f} KiB")
    return file / raw


MEASURES = (
    Measure(name="tool effect, SQLite FULL: wall against the warm turn", unit="x", run=tool),
    Measure(name="model effect, SQLite FULL: wall against the warm turn", unit="x", run=model),
    Measure(name="turn.model against turn.effect: CPU of a turn", unit="x", run=model_call),
    Measure(name="file after 500 runtime turns against the raw JSON of its messages", unit="x", run=size),
)
