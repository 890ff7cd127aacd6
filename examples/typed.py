from typing import Any, ClassVar

from pydantic import BaseModel

from tenuto import JSON, SessionRuntime, Turn, program


class Customer(BaseModel):
    schema_version: ClassVar[str] = "2"
    email: str | None = None
    visits: int = 0


def mail_to_email(old: dict[str, Any]) -> dict[str, JSON]:
    return {"email": old.pop("mail", None), **old}


@program(state=Customer, migrations={("", "2"): mail_to_email})
async def greet(turn: Turn[Customer]) -> int:
    turn.state.visits += 1
    return turn.state.visits


async def main() -> None:
    async with SessionRuntime("sqlite:///shop.db", greet) as runtime:
        session = await runtime.create(greet, Customer(email="a@b.c"))
        assert (await session.send("hi")).result() == (await session.get()).state(Customer).visits
