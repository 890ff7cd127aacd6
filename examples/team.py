from pydantic import BaseModel

from tenuto import AskChild, Turn, program


class Opinion(BaseModel):
    risk: float


@program
async def legal(turn: Turn) -> Opinion:
    return Opinion(risk=0.2)


@program
async def chief(turn: Turn) -> float:
    one, two = await turn.wait_all(AskChild(legal, turn.text), AskChild(legal, turn.text, timeout=3600))
    again = await turn.child(legal, "Are you sure?", session_id=two.session_id)
    return max(one.result().risk, again.result().risk)


TOOLS = [legal.as_tool(description="Ask the lawyers.")]
