"""The state of a program that declares a model."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar, Generic, TypeVar

import pytest
from pydantic import BaseModel, Field

from tenuto import SessionRuntime, Store, Tool, Turn, program, run_tools
from tenuto.errors import InvalidInput, RunFailed, StateConflict, StateInvalid
from tenuto.messages import AssistantMessage, ToolCall
from tests.runtime.runtimes import in_memory, opened

pytestmark = in_memory


class Line(BaseModel):
    article: str
    count: int = 1


@dataclass
class Address:
    city: str
    doors: list[int] = field(default_factory=list)


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    item: T


class Cart(BaseModel):
    schema_version: ClassVar[str] = "1"
    owner: str | None = None
    visits: int = 0
    lines: list[Line] = []
    prices: dict[str, Decimal] = {}
    tags: set[str] = set()
    sent_to: Address | None = None
    opened_at: datetime = Field(default_factory=lambda: datetime(2026, 1, 2, tzinfo=UTC))

    @property
    def count(self) -> int:
        return sum(line.count for line in self.lines)

    def visit(self) -> None:
        self.visits += 1


def calling(tool: str) -> AssistantMessage:
    """Return a message with three calls of a tool, for a, b and c."""
    calls: list[ToolCall] = [{"id": who, "name": tool, "arguments": {"who": who}} for who in "abc"]
    return {"role": "assistant", "content": "", "tool_calls": calls}


async def ran(store: Store, body: Any, seed: Any = None, **options: Any) -> tuple[SessionRuntime, Any]:
    """Run a body as a program with a cart, once."""
    runtime = await opened(store, [program(state=Cart, name="shop", **options)(body)])
    session = await runtime.create("shop", seed, "s", exists_ok=True)
    return runtime, await session.send("go")


async def test_a_state_is_read_and_assigned_by_its_fields(store: Store) -> None:
    async def body(turn: Turn[Cart]) -> list[Any]:
        state = turn.state
        assert isinstance(state, Cart)
        state.visits += 1
        state.lines = [*state.lines, Line(article="tea", count=2)]
        state.visit()
        turn.update(lambda cart: {"tags": cart.tags | {"new"}, "prices": {**cart.prices, "tea": Decimal("1.50")}})
        return [state.visits, turn.state.count, state.model_dump(mode="json")["tags"]]

    runtime, outcome = await ran(store, body, Cart(owner="ada", sent_to=Address("Graz", [7])))
    assert outcome.result() == [2, 2, ["new"]]
    view = await runtime.get("s")
    assert view.document == {
        "owner": "ada",
        "visits": 2,
        "lines": [{"article": "tea", "count": 2}],
        "prices": {"tea": "1.50"},
        "tags": ["new"],
        "sent_to": {"city": "Graz", "doors": [7]},
        "opened_at": "2026-01-02T00:00:00Z",
    }
    assert view.schema_version == "1"
    cart = view.state(Cart)
    assert (cart.count, cart.prices["tea"], cart.sent_to) == (2, Decimal("1.5"), Address("Graz", [7]))


CHANGES = {
    "append": lambda s: s.lines.append(Line(article="x")),
    "list item": lambda s: s.lines.__setitem__(0, Line(article="x")),
    "sort": lambda s: s.lines.sort(),
    "nested model": lambda s: setattr(s.lines[0], "count", 9),
    "dict item": lambda s: s.prices.__setitem__("tea", 1),
    "dict update": lambda s: s.prices.update(tea=1),
    "set": lambda s: s.tags.add("x"),
    "dataclass": lambda s: setattr(s.sent_to, "city", "x"),
    "in a dataclass": lambda s: s.sent_to.doors.append(1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_value_cannot_be_changed_in_place(store: Store, change: Any) -> None:
    seed = Cart(lines=[Line(article="tea")], prices={"tea": Decimal(2)}, tags={"a"}, sent_to=Address("Graz", [7]))

    async def body(turn: Turn[Cart]) -> None:
        with pytest.raises(InvalidInput, match=r"cannot be changed in place.*turn\.update"):
            change(turn.state)
        assert turn.state == seed

    runtime, outcome = await ran(store, body, seed)
    assert outcome.completed
    assert (await runtime.get("s")).state(Cart) == seed


async def test_values_can_be_used_to_make_new_ones(store: Store) -> None:
    seed = Cart(lines=[Line(article="tea"), Line(article="milk")], sent_to=Address("Graz"), tags={"a"})

    async def body(turn: Turn[Cart]) -> None:
        first, second = turn.state.lines
        assert first == Line(article="tea")
        turn.state.lines = [second, first.model_copy(update={"count": 5})]
        turn.state.sent_to = Address(turn.state.sent_to.city, [*turn.state.sent_to.doors, 3])  # type: ignore[union-attr]
        kept = turn.state.tags.copy()
        kept.add("b")
        turn.state.tags = kept

    runtime, outcome = await ran(store, body, seed)
    assert outcome.completed
    after = (await runtime.get("s")).state(Cart)
    assert after.lines == [Line(article="milk"), Line(article="tea", count=5)]
    assert (after.sent_to, after.tags) == (Address("Graz", [3]), {"a", "b"})


BAD: dict[str, tuple[Any, str]] = {
    "type": (lambda t: setattr(t.state, "visits", "many"), "state.visits"),
    "nested": (lambda t: setattr(t.state, "lines", [{"article": "a"}, {"count": 1}]), "state.lines[1].article"),
    "undeclared": (lambda t: setattr(t.state, "colour", "red"), "state.colour"),
    "undeclared item": (lambda t: t.state.__setitem__("colour", "red"), "state.colour"),
    "undeclared update": (lambda t: t.update(lambda _: {"visits": 3, "colour": 1}), "state.colour"),
    "not stored": (lambda t: setattr(t.state, "prices", {"a": Decimal("NaN")}), "state.prices.a"),
}


@pytest.mark.parametrize(("change", "path"), BAD.values(), ids=BAD)
async def test_a_value_that_does_not_fit_fails_the_turn_and_writes_nothing(
    store: Store, change: Any, path: str
) -> None:
    async def body(turn: Turn[Cart]) -> None:
        turn.state.owner = "eve"
        change(turn)

    runtime, outcome = await ran(store, body, {"visits": 1})
    with pytest.raises(RunFailed) as caught:
        outcome.result()
    assert isinstance(caught.value.__cause__, StateInvalid)
    assert (outcome.error["category"], outcome.error["details"]["path"]) == ("state_invalid", path)
    after = (await runtime.get("s")).state(Cart)
    assert (after.owner, after.visits) == (None, 1)


async def test_only_the_fields_that_were_set_are_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(turn: Turn[Cart]) -> None:
        turn.state.visits = 5
        turn.state.owner = turn.state.owner
        await turn.save()
        turn.update(lambda cart: {"tags": {*cart.tags, "b"}})

    written: list[dict[str, Any]] = []
    commit = store.commit

    async def noted(change: Any) -> Any:
        written.append(dict(change.document))
        return await commit(change)

    monkeypatch.setattr(store, "commit", noted)
    await ran(store, body, Cart(owner="ada", tags={"a"}))
    assert [set(each) for each in written] == [set(), {"visits"}, {"tags"}]


async def test_parallel_tools_lose_no_update(store: Store) -> None:
    async def add(turn: Turn[Any], arguments: Mapping[str, Any]) -> None:
        for number in range(100):
            new = Line(article=f"{arguments['who']}{number}")
            turn.update(lambda s: {"lines": [*s.lines, new]})  # noqa: B023 - called at once
            await asyncio.sleep(0)

    async def body(turn: Turn[Cart]) -> None:
        turn.append(calling("add"))
        await run_tools(turn, [Tool(name="add", run=add)])

    runtime, outcome = await ran(store, body)
    assert outcome.completed
    articles = [line.article for line in (await runtime.get("s")).state(Cart).lines]
    assert sorted(articles) == sorted(f"{who}{n}" for who in "abc" for n in range(100))


async def test_parallel_tools_that_read_wait_and_assign_lose_nothing_silently(store: Store) -> None:
    added, refused = [], []

    async def add(turn: Turn[Any], arguments: Mapping[str, Any]) -> None:
        for number in range(100):
            lines = turn.state.lines
            await asyncio.sleep(0)
            new = Line(article=f"{arguments['who']}{number}")
            try:
                turn.state.lines = [*lines, new]
                added.append(new.article)
            except StateConflict as error:
                assert error.path == "state.lines"
                refused.append(new.article)

    async def body(turn: Turn[Cart]) -> None:
        turn.append(calling("add"))
        await run_tools(turn, [Tool(name="add", run=add)])
        turn.state.lines = [*turn.state.lines, Line(article="last")]  # the tools are done: no conflict

    runtime, outcome = await ran(store, body)
    assert outcome.completed, outcome.error
    assert added
    assert refused
    articles = [line.article for line in (await runtime.get("s")).state(Cart).lines]
    assert articles == [*added, "last"]


async def test_an_update_that_also_assigns_is_refused(store: Store) -> None:
    async def body(turn: Turn[Cart]) -> None:
        def change(cart: Cart) -> dict[str, Any]:
            cart.visits += 1
            return {"visits": 7}

        with pytest.raises(StateConflict):
            turn.update(change)

        async def later(_: Cart) -> dict[str, Any]:
            return {}

        with pytest.raises(InvalidInput, match="without awaiting"):
            turn.update(later)  # type: ignore[arg-type]

    assert (await ran(store, body))[1].completed


async def test_stored_fields_that_the_model_lacks_are_kept_and_reported(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async def write(turn: Turn) -> None:
        turn.state.update({"visits": 3, "colour": "red"})

    class Plain(Cart):
        schema_version: ClassVar[str] = ""

    async def read(turn: Turn[Plain]) -> int:
        turn.state.visits += 1
        return turn.state.visits

    old = await opened(store, [program(name="shop")(write)])
    await (await old.create("shop", session_id="s")).send("go")

    new = await opened(store, [program(state=Plain, name="shop")(read)])
    assert (await new.send("s", "go")).result() == 4
    view = await new.get("s")
    assert (view.document["colour"], view.document["visits"]) == ("red", 4)
    (record,) = [each for each in caplog.records if "colour" in each.getMessage()]
    assert record.levelname == "WARNING"


async def test_a_seed_is_checked_before_anything_is_written(store: Store) -> None:
    async def body(turn: Turn[Cart]) -> None: ...

    runtime = await opened(store, [program(state=Cart, name="shop")(body)])
    for seed in ({"visits": "x"}, {"colour": "red"}):
        with pytest.raises(StateInvalid):
            await runtime.create("shop", seed, "bad")
    assert not await runtime.list()


async def test_tasks_of_the_program_itself_are_told_apart_too(store: Store) -> None:
    async def body(turn: Turn[Cart]) -> list[str]:
        async def set_owner(name: str) -> str:
            known = turn.state.owner
            await asyncio.sleep(0)
            try:
                turn.state.owner = f"{known} {name}"
            except StateConflict:
                return f"{name} came late"
            return f"{name} was first"

        found = await asyncio.gather(set_owner("ada"), set_owner("eve"))
        turn.state.owner = f"{turn.state.owner}!"
        assert list(await asyncio.gather(set_owner("zoe"))) == ["zoe was first"]
        turn.state.owner = "set without a look"
        return list(found)

    runtime, outcome = await ran(store, body)
    assert outcome.result() == ["ada was first", "eve came late"]
    assert (await runtime.get("s")).state(Cart).owner == "set without a look"


async def test_a_generic_model_is_a_state_and_a_turn_that_is_over_takes_nothing(store: Store) -> None:
    kept: list[Any] = []

    async def body(turn: Turn[Any]) -> None:
        kept.append(turn)
        turn.state.item = [*turn.state.item, 4]

    runtime = await opened(store, [program(state=Box[list[int]], name="box")(body)])
    assert (await (await runtime.create("box", {"item": [3]}, "s")).send("go")).completed
    assert (await runtime.get("s")).state(Box[list[int]]).item == [3, 4]
    with pytest.raises(InvalidInput, match="over"):
        kept[0].state.item = []
    with pytest.raises(InvalidInput, match="over"):
        kept[0].update(lambda _: {"item": []})


async def test_a_stored_state_that_does_not_fit_fails_the_turn_which_can_be_resumed(store: Store) -> None:
    class Loose(Cart):
        visits: Any = 0

    async def spoil(turn: Turn[Loose]) -> None:
        turn.state.visits = "many"

    async def count(turn: Turn[Any]) -> Any:
        return turn.state.visits

    loose = await opened(store, [program(state=Loose, name="shop")(spoil)])
    await (await loose.create("shop", session_id="s")).send("go")
    strict = await opened(store, [program(state=Cart, name="shop")(count)])
    outcome = await strict.send("s", "hi")
    assert isinstance(outcome.exception, StateInvalid)
    assert outcome.exception.path == "state.visits"
    assert "is stored so: set it by an action" in str(outcome.exception)
    with pytest.raises(RunFailed, match=r"is failed: state\.visits .*`schema_version`\.$"):
        outcome.result()
    assert (await strict.get("s")).document["visits"] == "many"
    mended = await opened(store, [program(state=Loose, name="shop")(count)])
    assert (await mended.session("s").resume()).result() == "many"
