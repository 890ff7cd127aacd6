from pydantic import BaseModel
from pydantic_ai import Agent

from tenuto import SessionRuntime
from tenuto.agents.pydantic_ai import agent_program


class Verdict(BaseModel):
    refund: bool


agent = Agent("openai:gpt-5", output_type=Verdict, name="judge")


@agent.tool_plain(requires_approval=True)
async def pay_back(order: str) -> str:
    return "paid"


judge = agent_program(agent)


async def main() -> None:
    async with SessionRuntime("postgresql://localhost/shop", judge) as runtime:
        session = await runtime.create(judge)
        outcome = await session.send("Order 7 came broken.")
        for wait in outcome.waits:
            outcome = (await session.answer(wait, {"approved": True})).outcome or outcome
        print(outcome.result().refund)
