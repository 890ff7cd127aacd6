"""A turn whose first model is down, so that it asks a spare one; and one that fails, and is sent again by its key."""

import asyncio
import json
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tenuto.runtime.program.program import Program, program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.outcome import Outcome

if TYPE_CHECKING:
    from tests.crash.runtime_programs import World

GO, YES = "go", "yes"
SAID = {"fallback": ["spare: hello", "paid, and yes", "big: goodbye"], "outage": ["big: hello"]}
"""What the programs say, on whichever way they come to their end."""


class ModelDown(Exception):
    """The provider answered with an error."""

    def __init__(self, model: str, status_code: int) -> None:
        super().__init__(f"{model} is down")
        self.status_code = status_code


def script(body: Any, asked: dict[tuple[str, str], int]) -> tuple[int, str]:
    """Return the status and the text of an answer: of the fallback, the big model is back once the spare was asked."""
    session, model = body["user"], body["model"]
    number = asked[session, model] = asked.get((session, model), 0) + 1
    if model == "spare":
        return 200, "hello"
    if session.startswith("outage"):
        return (503, "") if number <= 2 else (200, "hello")
    return (200, "goodbye") if (session, "spare") in asked else (503, "")


def fallback_programs(world: "World") -> list[Program[Any]]:
    """Return the two programs."""

    def model(turn: Turn, name: str) -> Any:
        async def ask() -> str:
            body = {"model": name, "user": turn.session_id, "messages": []}
            status, text = await asyncio.to_thread(_post, world.port, body)
            turn.record_usage(name, input=10)
            if status >= 400:
                raise ModelDown(name, status)
            return f"{name}: {text}"

        return ask

    def payment(turn: Turn) -> Any:
        async def pay() -> str:
            world.act(turn.session_id, "pay")
            return "paid"

        return pay

    @program
    async def fallback(turn: Turn) -> None:
        try:
            turn.append(await turn.model(model(turn, "big"), retries=1, backoff=0))
        except ModelDown as error:
            assert error.status_code == 503
            turn.append(await turn.model(model(turn, "spare")))
        paid = await turn.effect("pay", payment(turn))
        answer = await turn.wait("go on?")
        turn.append(f"{paid}, and {answer}")
        turn.append(await turn.model(model(turn, "big")))

    @program
    async def outage(turn: Turn) -> None:
        await turn.effect("pay", payment(turn))
        turn.append(await turn.model(model(turn, "big"), retries=1, backoff=0))

    return [fallback, outage]


async def take(runtime: SessionRuntime, name: str, session: str) -> Outcome[Any]:
    """Go through a turn from its message to its end, as a caller does."""
    outcome = await runtime.send(session, GO, key=f"go {session}")
    if name == "outage":
        return await runtime.send(session, GO, key=f"go {session}")
    (wait,) = outcome.waits
    answered = await runtime.answer(wait, YES)
    assert answered.outcome is not None
    return answered.outcome


def _post(port: int, body: Any) -> tuple[int, str]:
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    asked = Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urlopen(asked, timeout=30) as reply:
            return 200, str(json.load(reply)["choices"][0]["message"]["content"])
    except HTTPError as error:
        with error:
            return error.code, ""
