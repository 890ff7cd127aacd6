"""A shop's support: a tool that is made once, one that a person approves, and one that the customer's browser runs.

The model is a stand-in that needs no key: it calls the tool that is named first in what the customer says.
"""

from collections.abc import Mapping

from tenuto import JSON, SessionRuntime, Tool, Turn, program, run_tools
from tenuto.messages import AssistantMessage, ContextMessage, text_of


async def look_up(turn: Turn, arguments: Mapping[str, JSON]) -> JSON:
    return {"order": arguments["order"], "status": "sent"}


async def refund(turn: Turn, arguments: Mapping[str, JSON]) -> JSON:
    turn.state["refunded"] = arguments["order"]  # written with the tool's result
    return f"refunded order {arguments['order']}"


TOOLS = [
    Tool(name="look_up", run=look_up, idempotent=True),
    Tool(name="refund", run=refund, needs_approval=True),
    Tool(name="locate"),  # without a function: the browser answers
]


async def ask(context: list[ContextMessage]) -> AssistantMessage:
    said = context[-1]
    name, _, order = text_of(said).partition(" ")
    if said["role"] == "user" and name in {tool.name for tool in TOOLS}:
        call_id = f"call-{len(context)}"
        return {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": call_id, "name": name, "arguments": {"order": order}}],
        }
    return {"role": "assistant", "content": f"You said: {text_of(said)}"}


@program(version=2)
async def support(turn: Turn) -> None:
    async for step in turn.steps():
        if not turn.open_calls:  # else a tool is waited for, and this is the rest of its step
            reply = await turn.effect("model", lambda: ask(turn.context), {"step": step}, kind="model")
            turn.append(reply)
            if not reply.get("tool_calls"):
                return
        await run_tools(turn, TOOLS)


runtime = SessionRuntime("sqlite:///shop.db", support)
