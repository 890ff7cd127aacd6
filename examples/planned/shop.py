from openai import AsyncOpenAI

from tenuto import Retention, SessionRuntime, Turn, program, run_tools, tool
from tenuto.messages import AssistantMessage, from_openai, to_openai


@tool(idempotent=True, retries=2)
async def look_up(order: str) -> dict[str, str]:
    """Look up an order."""
    return {"order": order, "status": "sent"}


@tool(needs_approval=True)
async def refund(turn: Turn, order: str, amount: float) -> str:
    """Pay an order back."""
    turn.state["refunded"] = order  # written with the tool's result
    return f"refunded {amount}"


@tool(client=True)
async def location() -> tuple[float, float]:
    """Where the customer is."""
    raise NotImplementedError  # the browser answers


TOOLS = [look_up, refund, location]


@program(version=2, accepts=[1])
async def support(turn: Turn) -> None:
    async def ask() -> AssistantMessage:
        return from_openai(
            await AsyncOpenAI().chat.completions.create(
                model="gpt-5", messages=to_openai(turn.context), tools=[each.openai() for each in TOOLS]
            )
        )

    async for _ in turn.steps():
        reply = await turn.model(ask)
        turn.append(reply)
        if not reply.get("tool_calls"):
            return
        await run_tools(turn, TOOLS)


runtime = SessionRuntime("sqlite:///shop.db", support, retention=Retention())
