"""The agent of docs/programs.md, line by line, around a model and tools of a test."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tenuto import Tool, Turn, program, run_tools
from tenuto.runtime.program.program import Program


def guide_agent(model: Callable[[Turn], Awaitable[Any]], tools: Sequence[Tool]) -> Program[None]:
    """Return the guide's agent, a program named `agent`."""

    @program
    async def agent(turn: Turn) -> None:
        async for _ in turn.steps():
            if not turn.open_calls:
                upto = {"upto": len(turn.messages)}
                message: Any = await turn.effect("model", lambda: model(turn), upto, kind="model")
                turn.append(message)
                if not message.get("tool_calls"):
                    return
            await run_tools(turn, tools)

    return agent
