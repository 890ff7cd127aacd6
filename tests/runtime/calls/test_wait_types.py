"""What a program gets from a wait: a value of the type it declared, live and at every replay."""

from datetime import date
from decimal import Decimal
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator

from tenuto import Approval, Turn, WaitFor, program
from tenuto.errors import AnswerInvalid, InvalidInput
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, in_memory


class Line(BaseModel):
    article: str = Field(alias="item")
    price: Decimal


class Order(BaseModel):
    due: date
    lines: list[Line]
    note: str | None = None

    @field_validator("lines")
    @classmethod
    def some(cls, lines: list[Line]) -> list[Line]:
        if not lines:
            raise ValueError("an order needs a line")
        return lines


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = 0


RIGHT: Any = {"due": "2026-03-01", "lines": [{"item": "shirt", "price": "9.90"}]}


async def test_a_program_gets_the_type_it_declares_also_when_it_runs_again(harness: OurHarness) -> None:
    got: list[Any] = []

    @program
    async def sells(turn: Turn) -> Order:
        order = await turn.wait("order", returns=Order)
        got.append(order)
        many, plain = await turn.wait_all(WaitFor("many", returns=list[int]), WaitFor("plain"))
        sure = await turn.wait("sure?", kind="approval")
        got.append((many, plain, sure))
        return order

    database = Database(harness)
    runtime = await database.runtime(sells)
    await runtime.create(sells, session_id="s")
    (wait,) = (await runtime.send("s", "hi")).waits
    before = await runtime.store.dump()
    wrong: list[tuple[Any, str]] = [
        ({**RIGHT, "due": "soon"}, "answer.due"),
        ({**RIGHT, "lines": [{"item": "shirt"}]}, "answer.lines[0].price"),
        ({**RIGHT, "not": "declared"}, "answer"),
        ({**RIGHT, "lines": [{"item": "shirt", "price": 1, "colour": "red"}]}, "answer.lines[0]"),
        ({"lines": []}, "answer.due"),
    ]
    for value, path in wrong:
        with pytest.raises(AnswerInvalid) as refused:
            await runtime.answer(wait.wait_id, value)
        assert refused.value.problems[0]["path"] == path
    assert await runtime.store.dump() == before
    await runtime.answer(wait.wait_id, RIGHT)
    await runtime.store.aclose()

    elsewhere = await database.runtime(sells)
    many, plain = await elsewhere.session("s").waits()
    with pytest.raises(AnswerInvalid, match=r"answer\[1\]"):
        await elsewhere.answer(many, [1, "2"])
    await elsewhere.answer(many, [1, 2])
    await elsewhere.answer(plain, {"any": ["thing"]})
    (sure,) = await elsewhere.session("s").waits()
    done = await elsewhere.answer(sure, {"approved": False, "reason": "too dear"})
    expected = Order.model_validate(RIGHT)
    assert got == [*[expected] * 3, ([1, 2], {"any": ["thing"]}, Approval(False, "too dear"))]
    assert not got[-1][2]
    assert done.outcome is not None
    output: Any = done.outcome.output
    assert output == expected


@in_memory
async def test_an_answer_may_be_a_model(harness: OurHarness) -> None:
    @program
    async def sells(turn: Turn) -> str:
        return str((await turn.wait("order", returns=Order)).due)

    runtime = await Database(harness).runtime(sells)
    session = await runtime.create(sells, session_id="s")
    (wait,) = (await session.send("hi")).waits
    answered = await session.answer(wait, Order.model_validate(RIGHT))
    assert answered.outcome is not None
    assert answered.outcome.output == "2026-03-01"


async def test_what_only_a_validator_refuses_is_an_error_in_the_program_now_and_at_replay(harness: OurHarness) -> None:
    refused: list[str] = []

    @program
    async def sells(turn: Turn) -> int:
        for _ in range(3):
            try:
                return len((await turn.wait("order", returns=Order)).lines)
            except AnswerInvalid as error:
                refused.append(error.problems[0]["path"])
        return 0

    runtime = await Database(harness).runtime(sells)
    session = await runtime.create(sells, session_id="s")
    (wait,) = (await session.send("hi")).waits
    await session.answer(wait, {**RIGHT, "lines": []})
    (again,) = await session.waits()
    answered = await session.answer(again, RIGHT)
    assert answered.outcome is not None
    assert answered.outcome.result() == 1
    assert refused == ["answer.lines"] * 2


class Opaque:
    pass


@in_memory
@pytest.mark.parametrize(
    "given",
    [
        {"returns": Opaque},
        {"returns": 5},
        {"returns": "Order"},
        {"returns": int, "schema": {}},
        {"returns": int, "kind": "approval"},
        {"kind": "approval", "schema": {}},
        {"kind": "child"},
        {"kind": "time"},
        {"kind": ["approval"]},
    ],
)
async def test_a_wait_that_cannot_be_is_refused_where_it_would_be_opened(
    harness: OurHarness, given: dict[str, Any]
) -> None:
    refused: list[InvalidInput] = []

    @program
    async def asks(turn: Turn) -> None:
        wait: Any = turn.wait
        with pytest.raises(InvalidInput) as error:
            await wait("s", **given)
        refused.append(error.value)

    runtime = await Database(harness).runtime(asks)
    await runtime.create(asks, session_id="s")
    assert (await runtime.send("s", "hi")).completed
    assert len(refused) == 1


@in_memory
@pytest.mark.parametrize(
    ("returns", "right", "wrong"),
    [
        (Literal["S", "L"], "S", "M"),
        (TypeAdapter(int | None), None, "1"),
        (dict[str, list[bool]], {"a": [True]}, {"a": [1]}),
        (Loose, {"a": 1, "b": 2}, {"a": "x", "b": 2}),
        (Any, {"x": [None]}, None),
        (float, 1, "1.5"),
    ],
)
async def test_any_type_with_a_schema_may_be_declared(
    harness: OurHarness, returns: Any, right: Any, wrong: Any
) -> None:
    @program
    async def asks(turn: Turn) -> str:
        return repr(await turn.wait("s", returns=returns))

    runtime = await Database(harness).runtime(asks)
    session = await runtime.create(asks, session_id="s")
    (wait,) = (await session.send("hi")).waits
    if wrong is not None:
        with pytest.raises(AnswerInvalid):
            await session.answer(wait, wrong)
    answered = await session.answer(wait, right)
    assert answered.outcome is not None
    kind: TypeAdapter[Any] = returns if isinstance(returns, TypeAdapter) else TypeAdapter(returns)
    assert answered.outcome.result() == repr(kind.validate_python(right))


class Left(BaseModel):
    kind: Literal["left"]
    x: int


class Right(BaseModel):
    kind: Literal["right"]
    y: list[Line]


@in_memory
@pytest.mark.parametrize(
    ("returns", "wrong", "path"),
    [
        (Order | None, {**RIGHT, "due": "soon"}, "answer.due"),
        (Order | None, 5, "answer"),
        (Left | Right, {"kind": "right", "y": [{"item": "tea", "price": []}]}, "answer.y[0].price"),
        (Left | Right, {"kind": "left", "x": "1"}, "answer.x"),
        (Left | Right, {"kind": "up"}, "answer"),
        (list[Left | Right], [{"kind": "left", "x": 1}, {"kind": "right", "z": 1}], "answer[1]"),
    ],
)
async def test_a_refusal_names_the_path_also_within_one_of_several_forms(
    harness: OurHarness, returns: Any, wrong: Any, path: str
) -> None:
    @program
    async def asks(turn: Turn) -> str:
        return repr(await turn.wait("s", returns=returns))

    runtime = await Database(harness).runtime(asks)
    session = await runtime.create(asks, session_id="s")
    (wait,) = (await session.send("hi")).waits
    with pytest.raises(AnswerInvalid) as refused:
        await session.answer(wait, wrong)
    assert refused.value.problems[0]["path"] == path
