"""Values of a state that JSON cannot hold: refused with their path wherever they would be kept, never changed."""

import dataclasses
import math
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, SecretStr, computed_field

from tenuto import open_store
from tenuto.errors import NotJson, TenutoError
from tenuto.graph import (
    END,
    CompiledGraph,
    GraphBuilder,
    GraphOutcome,
    SignalDescriptor,
    State,
    append,
    merge,
    save_session,
    suspend,
)
from tenuto.graph.state import schema_of
from tenuto.model.session import SessionRecord
from tenuto.store.store import Store


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    S = 1


class Kind(Enum):
    A = "a"


class Thing:
    pass


class Unequal:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    __hash__ = None  # type: ignore[assignment]


class Model(BaseModel):
    x: Any = None
    n: float = 0


class Short(BaseModel):
    x: int = 0
    hidden: str = Field(default="", exclude=True)


class Computed(BaseModel, extra="forbid"):
    x: int = 0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return self.x * 2


@dataclasses.dataclass
class Data:
    x: int = 0


class Text(str):
    __slots__ = ()


def ring() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


def deep() -> Any:
    value: Any = 1
    for _ in range(200):
        value = [value]
    return value


ODD: list[Any] = [
    {1, 2},
    frozenset({1}),
    (1, 2),
    Decimal("1.10"),
    b"bytes",
    b"\xff",
    bytearray(b"x"),
    datetime(2030, 1, 1, tzinfo=UTC),
    date(2030, 1, 1),
    timedelta(seconds=3),
    UUID(int=5),
    Path("/x"),
    {1: "int key"},
    {(1, 2): "tuple key"},
    {None: 1},
    Colour.RED,
    Size.S,
    Kind.A,
    Text("subclass"),
    OrderedDict(a=1),
    deque([1]),
    Thing(),
    Unequal(),
    Model(x=1),
    Data(),
    SecretStr("hush"),
    ValueError("x"),
    len,
    Thing,
    1j,
    range(3),
    iter([1]),
    math.nan,
    math.inf,
    -math.inf,
    10**5000,
    "half \ud83d",
    {"\ud83d": 1},
    ring(),
    deep(),
]
PLAIN: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    -0.0,
    2**70,
    10**4000,
    "",
    "a\0b",
    "é😀",
    [],
    {},
    [[1, "x", None]],
    {"a": {"b": [1.0]}},
]


class Loose(State):
    a: Any = None
    messages: Annotated[list[dict[str, Any]], append] = []
    table: Annotated[dict[str, Any], merge] = {}


def named(value: Any) -> str:
    try:
        return f"{type(value).__name__}-{str(value)[:10]!a}"
    except Exception:
        return type(value).__name__


PLACES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "a": lambda v: {"a": v},
    "a.x[1]": lambda v: {"a": {"x": [0, v]}},
    "messages[1].content": lambda v: {"messages": [{"content": 1}, {"content": v}]},
    "table.k": lambda v: {"table": {"k": v}},
}


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(f"sqlite:///{tmp_path}/a.db", synchronous="off") as store:
        yield store


def saving(store: Any, body: Any, state: type[State] = Loose, *, checkpoints: bool = False) -> CompiledGraph[Any]:
    builder = GraphBuilder(state, "g").add_node("n", body).add_edge("n", END).set_entry("n").with_session_store(store)
    return (builder.with_checkpointer(store) if checkpoints else builder).compile()


async def told(store: Store) -> Any:
    """Return everything sessions hold, in plain words."""
    page = await store.list(None)
    return [(each.session_id, each.version, (await store.load(each.session_id)).state) for each in page]  # type: ignore[union-attr]


def refused(outcome: GraphOutcome[Any], path: str) -> TenutoError:
    assert outcome.status == "failed"
    assert isinstance(outcome.error, TenutoError)
    assert not outcome.error.retryable
    found = outcome.error.details().get("path", "")
    # A key has no path of its own, and a value may be wrong further down.
    assert path.rsplit(".k", 1)[0] in found, (found, path)
    return outcome.error


@pytest.mark.parametrize("place", PLACES)
async def test_no_value_that_would_come_back_as_another_is_kept_in_an_any_field(place: str, opened: Store) -> None:
    async def gives(_: Loose) -> dict[str, Any]:
        return PLACES[place](now)

    for ways in (False, True):
        graph = saving(opened, gives, checkpoints=ways)
        for number, now in enumerate(ODD):
            before = await told(opened)
            outcome = await graph.run(session_id=f"odd-{ways}-{number}")
            shift = "messages[1].content" if place.startswith("messages") else place
            refused(outcome, shift)
            assert await told(opened) == before, named(now)
            with pytest.raises(TenutoError):
                await graph.invoke(session_id=f"odd-{ways}-{number}")


@pytest.mark.parametrize("place", PLACES)
async def test_plain_values_are_seen_the_same_warm_and_cold(place: str, opened: Store, tmp_path: Path) -> None:
    async def gives(state: Loose) -> dict[str, Any]:
        return PLACES[place](now) if state.a is None and not state.messages and not state.table else {}

    graph = saving(opened, gives)
    async with open_store(f"sqlite:///{tmp_path}/a.db") as second:
        cold = saving(second, gives)
        for number, now in enumerate(PLAIN):
            assert (await graph.run(session_id=f"s{number}")).completed
            warm_state = (await graph.run(session_id=f"s{number}")).entry_state
            cold_state = (await cold.run(session_id=f"s{number}")).entry_state
            assert warm_state == cold_state, named(now)
            assert repr(warm_state.__dict__) == repr(cold_state.__dict__)


class Typed(State):
    when: datetime | None = None
    some: set[int] = set()
    pair: tuple[int, ...] = ()
    price: Decimal = Decimal(0)
    raw: bytes = b""
    colour: Colour = Colour.RED
    total: float = 0
    either: Decimal | str | None = None
    model: Model = Model()
    short: Short = Short()
    computed: Computed | None = None
    data: Data = Data()
    secret: SecretStr = SecretStr("")
    by_number: dict[int, str] = {}
    models: Annotated[list[Model], append] = []


GIVEN: list[tuple[str, Any, bool]] = [
    ("when", datetime(2030, 1, 1, tzinfo=UTC), True),
    ("some", {3, 1}, True),
    ("pair", (1, 2), True),
    ("price", Decimal("1.10"), True),
    ("raw", b"text", True),
    ("raw", b"\xff", False),
    ("colour", Colour.RED, True),
    ("total", 3, True),
    ("total", math.nan, False),
    ("total", math.inf, False),
    ("either", "1.1", True),
    ("either", Decimal("1.1"), False),
    ("model", Model(x=[1]), True),
    ("model", Model(x={1}), False),
    ("model", Model(n=math.nan), False),
    ("short", Short(x=1), True),
    ("short", Short(x=1, hidden="not kept"), False),
    ("computed", Computed(x=1), False),
    ("data", Data(x=2), True),
    ("secret", SecretStr("hush"), False),
    ("by_number", {1: "one"}, True),
    ("models", [Model(x=1), Model(x="a")], True),
    ("models", [Model(x=1), Model(x=(1,))], False),
]


async def test_declared_types_come_back_as_they_are_or_are_refused(opened: Store, tmp_path: Path) -> None:
    async def gives(state: Typed) -> dict[str, Any]:
        return {name: value} if first else {}

    async with open_store(f"sqlite:///{tmp_path}/a.db") as second:
        for number, (name, value, fits) in enumerate(GIVEN):
            graph, cold = saving(opened, gives, Typed), saving(second, gives, Typed)
            first = True
            before = await told(opened)
            outcome = await graph.run(session_id=f"s{number}")
            first = False
            if not fits:
                refused(outcome, name)
                assert await told(opened) == before
                continue
            assert outcome.completed, (name, value, outcome.error)
            warm_state = (await graph.run(session_id=f"s{number}")).entry_state
            cold_state = (await cold.run(session_id=f"s{number}")).entry_state
            assert warm_state == cold_state
            assert {n: type(v) for n, v in vars(cold_state).items() if n == name} == {
                name: type(value)
            } or name == "total"


async def test_a_value_is_refused_at_a_pause_at_a_save_in_between_and_in_a_store_of_the_users_own(
    opened: Store,
) -> None:
    async def pauses(_: Loose) -> NoReturn:
        await suspend(SignalDescriptor("go"))

    error = refused(await saving(opened, pauses).run({"a": {1}}, session_id="s"), "a")
    assert error.category == "suspension_persistence_failed"
    assert await told(opened) == []
    assert not await opened.waits.open()

    async def saves(_: Loose) -> dict[str, Any]:
        with pytest.raises(TenutoError) as caught:
            await save_session({"a": math.nan})
        assert (caught.value.category, caught.value.retryable) == ("session_save_failed", False)
        return {"a": 1}

    assert (await saving(opened, saves).run(session_id="t")).completed

    class Own:
        kept: dict[str, SessionRecord] = {}

        async def load(self, session_id: str) -> SessionRecord | None:
            return self.kept.get(session_id)

        async def save(self, session_id: str, record: SessionRecord) -> None:
            self.kept[session_id] = record

        async def delete(self, session_id: str) -> None: ...

        async def list(self, filter: Any = None) -> list[Any]:  # noqa: A002 - the protocol's own name
            return []

    async def nothing(_: Loose) -> dict[str, Any]:
        return {}

    for odd in ({1}, math.nan, Decimal(1)):
        error = refused(await saving(Own(), nothing).run({"a": odd}, session_id="s"), "a")
        assert error.category == "session_save_failed"
        assert isinstance(error.__cause__, NotJson)
    assert not Own.kept


async def test_a_run_that_could_not_be_saved_for_its_values_is_over_and_says_so(opened: Store) -> None:
    async def gives(_: Loose) -> dict[str, Any]:
        return {"a": {1}}

    outcome = await saving(opened, gives).run(session_id="s")
    assert "set" in str(outcome.error)
    assert "would not help" in str(outcome.error)
    (run,) = await opened.runs.of_invocation(outcome.invocation_id)
    assert run.status == "failed"
    assert run.error["cause"] == "value_not_json"


class Found(State):
    items: list[int] = [1, 2]
    whens: Annotated[list[datetime], append] = []
    anything: Annotated[list[Any], append] = []


async def test_what_instances_return_is_kept_as_it_comes_back(opened: Store) -> None:
    async def when(_: Found, item: int) -> datetime:
        return datetime(2030, 1, item, tzinfo=UTC)

    async def odd(_: Found, item: int) -> Any:
        return {item}

    def fanning(call: Any, target: str) -> CompiledGraph[Any]:
        fan = GraphBuilder(Found, "f").add_fan_out_node("n", call, items_field="items", target_field=target)
        return fan.add_edge("n", END).set_entry("n").with_checkpointer(opened).compile()

    outcome = await fanning(when, "whens").run()
    assert outcome.state is not None
    assert outcome.state.whens == [datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 2, tzinfo=UTC)]
    outcome = await fanning(odd, "anything").run()
    assert isinstance(outcome.error, TenutoError)
    assert isinstance(outcome.error.__cause__, NotJson)
    assert outcome.error.__cause__.path == "anything[0]"
    assert not outcome.error.retryable


def test_a_member_of_an_enum_is_kept_by_its_value() -> None:
    class Colour(Enum):
        RED = "r"
        BLUE = "b"

    class Painted(State):
        colour: Colour = Colour.RED

    assert schema_of(Painted).fields["colour"].dump(Colour.BLUE) == "b"
