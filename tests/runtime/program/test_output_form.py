"""The output of an outcome is what the program's annotation declares, wherever the outcome comes from."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, assert_type

import pytest
from pydantic import BaseModel, BeforeValidator, Field
from typing_extensions import TypedDict

from tenuto import JSON, AskChild, Program, Store, Turn, WaitFor, program
from tenuto.actions import ChangeProgram
from tenuto.runtime.program.output_form import is_plain
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, opened


class Line(BaseModel):
    article: str
    price: Decimal = Field(alias="eur")


@dataclass
class Receipt:
    lines: list[Line]
    paid: date


def receipt(text: str) -> Receipt:
    return Receipt([Line(article=text, eur=Decimal("9.90"))], date(2026, 3, 1))


STORED = {"lines": [{"article": "tea", "eur": "9.90"}], "paid": "2026-03-01"}


@program
async def sells(turn: Turn) -> Receipt:
    return receipt(turn.text)


@program
async def asks(turn: Turn) -> Receipt:
    await turn.wait("sure?", returns=bool)
    return receipt(turn.text)


async def test_every_verb_that_has_an_outcome_gives_the_output_its_type(harness: OurHarness) -> None:
    database = Database(harness)
    runtime, other = await database.runtime(sells, asks), await database.runtime(sells, asks)
    session = await runtime.create(sells, session_id="s")
    sent = await session.send("tea", key="k")
    assert_type(sent.output, Receipt | None)
    assert (sent.output, sent.result()) == (receipt("tea"), receipt("tea"))
    assert sent.input_id is not None
    again = await session.send("tea", key="k")
    assert (again, again.replayed) == (sent, True)
    assert await other.session("s", sells).send("tea", key="k") == sent
    for each in (runtime, other):
        found: Any = await each.outcome(sent.input_id)
        assert (found.output, found) == (receipt("tea"), sent)
    handle = await session.start("milk")
    assert (await handle.result(), (await handle.wait()).output) == (receipt("milk"), receipt("milk"))
    assert (await session.regenerate()).output == receipt("milk")
    assert (await session.regenerate(fork=True)).output == receipt("milk")
    queued = await session.enqueue("rice")
    await other.drain()
    done: Any = await runtime.outcome(queued)
    assert done.output == receipt("rice")
    assert [run.run.outcome for run in await session.runs(limit=1)] == [
        {"output": {**STORED, "lines": [{"article": "rice", "eur": "9.90"}]}, "by": ["sells", "1"]}
    ]


async def test_an_answered_turn_gives_the_output_its_type(harness: OurHarness) -> None:
    database = Database(harness)
    runtime, other = await database.runtime(asks), await database.runtime(asks)
    session = await runtime.create(asks, session_id="s")
    (wait,) = (await session.send("tea")).waits
    answered = await session.answer(wait, True)
    assert answered.outcome is not None
    assert_type(answered.outcome.output, Receipt | None)
    assert answered.outcome.output == receipt("tea")
    repeated: Any = await other.answer(wait, True)
    assert (repeated.replayed, repeated.outcome.output) == (True, receipt("tea"))


async def test_a_resumed_turn_gives_the_output_its_type(harness: OurHarness) -> None:
    fails = [True]

    @program
    async def flaky(turn: Turn) -> list[Line]:
        if fails.pop() if fails else False:
            raise ConnectionError
        return receipt(turn.text).lines

    session = await (await Database(harness).runtime(flaky)).create(flaky, session_id="s")
    first = await session.send("tea", key="k")
    assert (first.status, first.output) == ("failed", None)
    assert (await session.resume()).output == receipt("tea").lines
    assert (await session.send("tea", key="k")).output == receipt("tea").lines


def versions(text: str, accepts: tuple[str, ...], declared: Any) -> Program[Any]:
    async def tells(turn: Turn) -> Any:
        return receipt(turn.text).lines[0]

    tells.__annotations__["return"] = declared
    return program(version=text, accepts=accepts)(tells)


class Priced(BaseModel):
    eur: Decimal
    article: Any


class Weighed(BaseModel):
    grams: int


LINE = {"article": "tea", "eur": "9.90"}


@pytest.mark.parametrize(
    ("newer", "expected"),
    [
        ([versions("2", ("1",), Priced)], Priced(eur=Decimal("9.90"), article="tea")),
        ([versions("2", ("1",), Weighed)], LINE),
        ([versions("2", (), Priced)], LINE),
        ([sells], LINE),
        ([], LINE),
    ],
    ids=["accepts and fits", "accepts, does not fit", "does not accept", "another program", "none"],
)
async def test_an_output_of_an_older_version_is_read_by_one_that_accepts_it_and_fits(
    harness: OurHarness, newer: list[Program[Any]], expected: object
) -> None:
    database = Database(harness)
    older = versions("1", (), Line)
    first = await database.runtime(older)
    sent = await (await first.create(older, session_id="s")).send("tea", key="k")
    assert (sent.output, sent.input_id is None) == (receipt("tea").lines[0], False)
    second = await database.runtime(*newer)
    for found in (await second.outcome(str(sent.input_id)), await second.send("s", "tea", key="k")):
        assert (found.status, found.output, found.result()) == ("completed", expected, expected)


async def test_an_output_is_of_the_program_that_returned_it_whatever_the_session_has_now(harness: OurHarness) -> None:
    @program
    async def gives(turn: Turn) -> Line:
        turn.hand_off("weighs")
        return receipt(turn.text).lines[0]

    @program
    async def weighs(turn: Turn) -> Priced:
        return Priced(eur=Decimal(1), article=turn.text)

    session = await (runtime := await Database(harness).runtime(gives, weighs, sells)).create(gives, session_id="s")
    sent = await session.send("tea", key="k")
    assert type(sent.output) is Line
    assert (await session.send("tea", key="k")).output == sent.output
    second: Any = (await session.send("milk", key="m")).output
    assert second == Priced(eur=Decimal(1), article="milk")
    await session.execute(ChangeProgram("sells@1"))
    outputs = [(await runtime.send("s", text, key=key)).output for text, key in (("tea", "k"), ("milk", "m"))]
    assert outputs == [sent.output, second]


async def test_a_type_that_refuses_what_is_stored_in_any_way_leaves_the_json(store: Store) -> None:
    def refuses(value: Any) -> Any:
        if isinstance(value, dict):
            raise KeyError("grams")
        return value

    @program
    async def odd(turn: Turn) -> Annotated[Line, BeforeValidator(refuses)]:
        return receipt(turn.text).lines[0]

    session = await (await opened(store, [odd])).create(odd, session_id="s")
    sent: Any = await session.send("tea", key="k")
    assert (sent.status, sent.output) == ("completed", LINE)
    assert await session.send("tea", key="k") == sent


async def test_what_a_child_of_an_older_version_returned_is_json_where_the_type_does_not_fit(
    harness: OurHarness,
) -> None:
    got: list[Any] = []

    def asking(child: Program[Any]) -> Program[None]:
        @program
        async def parent(turn: Turn) -> None:
            answers = await turn.wait_all(AskChild(child, "tea"), WaitFor("sure?", returns=bool))
            got.append(answers[0].result())

        return parent

    database = Database(harness)
    older, newer = versions("1", (), Line), versions("1", (), Weighed)
    before = await database.runtime(asking(older), older)
    waits = (await (await before.create("parent", session_id="p")).send("go")).waits
    await before.drain()
    after = await database.runtime(asking(newer), newer)
    answered = await after.answer(waits[1], True)
    assert (answered.outcome is not None and answered.outcome.status) == "completed"
    assert got == [LINE]


@pytest.mark.parametrize("declared", [str, list[int], dict[str, float] | None, Any, None])
async def test_a_program_whose_values_are_json_themselves_stores_nothing_more(store: Store, declared: Any) -> None:
    async def plain(turn: Turn) -> Any:
        return {str: "tea", list[int]: [1], Any: {"any": 1}}.get(declared)

    plain.__annotations__["return"] = declared
    made = program(plain)
    session = await (await opened(store, [made])).create(made, session_id="s")
    output = (await session.send("tea")).output
    (run,) = await session.runs()
    assert run.run.outcome == (None if output is None else {"output": output})


class Colour(Enum):
    RED = "red"


class Place(TypedDict):
    at: datetime


@pytest.mark.parametrize(
    "declared",
    [
        Line,
        Receipt,
        list[Line],
        Line | None,
        dict[int, str],
        dict[str, Decimal],
        tuple[int, str],
        set[str],
        bytes,
        datetime,
        Colour,
        Place,
        Literal[Colour.RED],
        Annotated[str, BeforeValidator(str.upper)],
    ],
    ids=repr,
)
def test_a_type_whose_values_are_not_json_is_read_back(declared: Any) -> None:
    assert not is_plain(declared)


@pytest.mark.parametrize(
    "declared",
    [
        None,
        Any,
        str,
        int | None,
        list[str],
        dict[str, list[int]],
        list[Any],
        dict,
        JSON,
        dict[str, JSON] | None,
        Literal["a", 1],
    ],
    ids=repr,
)
def test_a_type_whose_values_are_json_is_not(declared: Any) -> None:
    assert is_plain(declared)


ANY_TYPE: list[tuple[Any, Any]] = [
    (tuple[int, str], (1, "a")),
    (set[str], {"a"}),
    (bytes, b"abc"),
    (datetime, datetime(2026, 3, 1, tzinfo=UTC)),
    (Colour, Colour.RED),
    (Place, {"at": datetime(2026, 3, 1, tzinfo=UTC)}),
    (dict[int, str], {1: "a"}),
    (Line | None, None),
]


@pytest.mark.parametrize(("declared", "value"), ANY_TYPE, ids=repr)
async def test_any_type_that_pydantic_reads_comes_back(store: Store, declared: Any, value: Any) -> None:
    async def gives(turn: Turn) -> Any:
        return value

    gives.__annotations__["return"] = declared
    made = program(gives)
    session = await (await opened(store, [made])).create(made, session_id="s")
    sent = await session.send("x", key="k")
    assert (sent.output, type(sent.output)) == (value, type(value))
    assert await session.send("x", key="k") == sent
