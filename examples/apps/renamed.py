"""A field of the state gets another name: sessions that the old code made are migrated by the next turn of each."""

from typing import Any, ClassVar

from pydantic import BaseModel

from tenuto import JSON, Turn, program


class Before(BaseModel):
    mail: str | None = None
    visits: int = 0


class Customer(BaseModel):
    schema_version: ClassVar[str] = "2"
    email: str | None = None
    visits: int = 0


@program(name="greet", state=Before)
async def old_greet(turn: Turn[Before]) -> str:
    turn.state.visits += 1
    return f"{turn.state.mail}: visit {turn.state.visits}"


def mail_to_email(old: dict[str, Any]) -> dict[str, JSON]:
    return {"email": old.pop("mail", None), **old}


@program(version=2, accepts=[1], state=Customer, migrations={("", "2"): mail_to_email})
async def greet(turn: Turn[Customer]) -> str:
    turn.state.visits += 1
    return f"{turn.state.email}, visit {turn.state.visits}"
