"""A checkpointed step costs the same late in a run as early."""

from typing import Annotated, Any

from bench.harness import Measure, Scene, Stopwatch, wall
from tenuto import open_store
from tenuto.graph import END, GraphBuilder, State, append

_STEPS = 2_000
_WINDOW = 40


class Talk(State):
    n: int = 0
    messages: Annotated[list[dict[str, str]], append] = []


async def late_against_early(scene: Scene) -> float:
    """Return the median step around 2,000 against that around 50 of the same run, over several runs."""
    early: list[float] = []
    late: list[float] = []
    async with open_store(scene.url(), synchronous="OFF") as store:
        for _ in scene.rounds(3):
            times: list[float] = []
            watch = Stopwatch(wall)

            async def say(state: Talk, times: list[float] = times, watch: Stopwatch = watch) -> dict[str, Any]:
                if state.n:
                    watch.__exit__(None, None, None)
                    times.append(watch.seconds)
                watch.__enter__()
                return {"n": state.n + 1, "messages": [{"role": "user", "content": "hello " * 20}]}

            loop = (
                GraphBuilder(Talk)
                .with_checkpointer(store)
                .add_node("say", say)
                .add_conditional_edge("say", lambda s: END if s.n == _STEPS else "say")
                .set_entry("say")
                .compile()
            )
            await loop.invoke(step_limit=_STEPS)
            early += times[50 - _WINDOW // 2 : 50 + _WINDOW // 2]
            late += times[-_WINDOW:]
    early.sort()
    late.sort()
    above, below = late[len(late) // 2], early[len(early) // 2]
    scene.note(f"{above * 1e6:,.0f} µs against {below * 1e6:,.0f} µs")
    return above / below


MEASURES = (Measure(name="engine: checkpointed step 2,000 against step 50", unit="x", run=late_against_early),)
