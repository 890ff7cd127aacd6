"""A shop's support: a tool that is made once, one that a person approves, and one that the customer's browser runs.

The model is a stand-in that needs no key: it calls the tool that is named first in what the customer says.
"""

from tenuto import SessionRuntime, Turn, program, run_tools, tool
from tenuto.messages import AssistantMessage, ContextMessage, ToolCall, assistant, text_of


@tool(idempotent=True, retries=2)
async def look_up(order: str) -> dict[str, str]:
    """Look up an order."""
    return {"order": order, "status": "sent"}


@tool(needs_approval=True)
async def refund(turn: Turn, order: str) -> str:
    """Pay an order back."""
    turn.state["refunded"] = order  # written with the tool's result
    return f"refunded order {order}"


@tool(client=True)
async def locate() -> tuple[float, float]:
    """Find out where the customer is."""
    raise NotImplementedError  # the browser answers


TOOLS = [look_up, refund, locate]


async def ask(context: list[ContextMessage]) -> AssistantMessage:
    said = context[-1]
    name, _, order = text_of(said).partition(" ")
    if said["role"] == "user" and name in {each.name for each in TOOLS}:
        call: ToolCall = {"id": f"call-{len(context)}", "name": name, "arguments": {"order": order} if order else {}}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    return assistant(f"You said: {text_of(said)}")


@program(version=2, accepts=[1])
async def support(turn: Turn) -> None:
    async for _ in turn.steps():
        reply = await turn.model(lambda: ask(turn.context))
        turn.append(reply)
        if not reply.get("tool_calls"):
            return
        await run_tools(turn, TOOLS)


runtime = SessionRuntime("sqlite:///shop.db", support)
