"""Invocations that share a session: the last write wins, or all but one are refused, or they wait."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import InvalidInput, LaneBusy
from tenuto.graph import SessionState
from tenuto.model.lane import Owner
from tests.conftest import OurHarness
from tests.graph.talking import Body, ended, held, line, nothing, says

CHECKPOINTS = pytest.mark.parametrize("checkpoints", [False, True], ids=["plain", "checkpoints"])


class Part(SessionState):
    messages: list[str]
    mood: str


class Rest(SessionState):
    notes: list[str]
    count: int


class Both(SessionState):
    messages: list[str]
    notes: list[str]
    mood: str


LAST: Any = "last_write_wins"


def meanwhile(*others: Any, **update: Any) -> Body:
    """Return a node during which other invocations run on the session."""

    async def body(_: Any) -> Mapping[str, Any]:
        for other in others:
            await other.invoke(session_id="s")
        return update

    return body


def notes(*texts: str, **fields: Any) -> Body:
    async def body(_: Any) -> Mapping[str, Any]:
        return {"notes": list(texts), **fields}

    return body


@CHECKPOINTS
async def test_the_last_write_wins_with_its_own_view_of_every_field_it_names(store: Store, checkpoints: bool) -> None:
    kept = store if checkpoints else None
    both = line(says("old", notes=["n old"], mood="old"), store=store, state=Both)
    await both.invoke(session_id="s")
    other = line(says("theirs", notes=["n theirs"], mood="theirs"), store=store, state=Both, concurrency=LAST)
    aside = line(notes("ignored", count=7), store=store, state=_Count, concurrency=LAST)
    body = meanwhile(other, aside, messages=["mine"])
    graph = line(body, store=store, state=Both, checkpoints=kept, concurrency=LAST)
    await graph.invoke({"messages": ["asked"]}, session_id="s")
    # The untouched log goes back to where this run found it; a field it does not name is left as it is now.
    assert await held(store) == {"messages": ["old", "asked", "mine"], "notes": ["n old"], "mood": "old", "count": 7}
    assert (await line(nothing, store=store, state=Both).invoke(session_id="s")).notes == ["n old"]


class _Count(SessionState):
    count: int


@CHECKPOINTS
async def test_last_write_wins_over_a_session_that_did_not_exist_at_its_start(store: Store, checkpoints: bool) -> None:
    other = line(says("theirs", notes=["n theirs"], mood="theirs"), store=store, state=Both, concurrency=LAST)
    options: dict[str, Any] = {"checkpoints": store if checkpoints else None, "concurrency": LAST}
    await line(meanwhile(other, messages=["mine"]), store=store, state=Both, **options).invoke(session_id="s")
    assert await held(store) == {"messages": ["mine"], "notes": [], "mood": "calm"}


async def test_two_graphs_that_keep_different_fields_do_not_disturb_each_other(store: Store) -> None:
    first = line(says("m", mood="glad"), store=store, state=Part, concurrency=LAST)
    second = line(meanwhile(first, notes=["n"], count=3), store=store, state=Rest, concurrency=LAST)
    await second.invoke(session_id="s")
    assert await held(store) == {"messages": ["m"], "mood": "glad", "notes": ["n"], "count": 3}


async def test_five_at_once_and_the_last_write_wins_without_an_error(store: Store) -> None:
    graphs = [line(says(f"r{number}"), store=store, concurrency=LAST) for number in range(5)]
    outs = await asyncio.gather(*[graph.run(session_id="s") for graph in graphs])
    assert [ended(out) for out in outs] == ["completed"] * 5
    head = await store.head("s")
    assert head is not None
    assert head.version == 5
    assert len((await held(store))["messages"]) <= 5


@pytest.mark.parametrize("processes", [1, 2])
async def test_exclusive_invocations_append_all_their_replies_in_order(harness: OurHarness, processes: int) -> None:
    stores = [await harness.open() for _ in range(processes)]
    begun: list[int] = []

    def talks(number: int) -> Body:
        async def body(state: Any) -> Mapping[str, Any]:
            begun.append(number)
            await asyncio.sleep(0)
            return {"messages": [f"{number} after {len(state.messages)}"]}

        return body

    graphs = [line(talks(n), store=stores[n % processes], concurrency="exclusive") for n in range(8)]
    outs = await asyncio.gather(*[graph.run(session_id="s") for graph in graphs])
    assert [ended(out) for out in outs] == ["completed"] * 8
    assert (await held(stores[0]))["messages"] == [f"{number} after {at}" for at, number in enumerate(begun)]
    for process in range(processes):
        mine = [number for number in begun if number % processes == process]
        assert mine == sorted(mine)


async def test_optimistic_losers_are_refused_and_none_is_lost_after_retry(store: Store) -> None:
    graph = line(says("r"), store=store, concurrency="optimistic")
    left, refused = 5, 0
    while left:
        outs = await asyncio.gather(*[graph.run(session_id="s") for _ in range(left)])
        lost = [out for out in outs if ended(out) == "failed: session_write_conflict"]
        assert len(lost) < left
        left, refused = len(lost), refused + len(lost)
    assert (await held(store))["messages"] == ["r"] * 5


async def test_exclusive_is_refused_as_busy_when_its_time_is_up_and_nothing_ran(store: Store) -> None:
    lane = await store.lanes.acquire("s", Owner(owner_id="other", incarnation="1"))
    ran: list[str] = []

    async def body(_: Any) -> Mapping[str, Any]:
        ran.append("ran")
        return {}

    graph = line(body, store=store, concurrency="exclusive", lane_wait=0.01)
    out = await graph.run(session_id="s")
    assert (ended(out), ran) == ("failed: session_execution_busy", [])
    assert isinstance(out.error, LaneBusy)
    assert (out.error.owner, out.error.generation) == ("other", lane.generation)
    await store.lanes.disarm(lane)
    assert ended(await graph.run(session_id="s")) == "completed"


async def test_one_who_is_cancelled_while_waiting_lets_the_next_one_go(store: Store) -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    async def hold(_: Any) -> Mapping[str, Any]:
        inside.set()
        await go.wait()
        return {"messages": ["first"]}

    def run(body: Body) -> "asyncio.Task[Any]":
        return asyncio.create_task(line(body, store=store, concurrency="exclusive").run(session_id="s"))

    first = run(hold)
    await inside.wait()
    second, third = run(says("second")), run(says("third"))
    await asyncio.sleep(0)  # the first step of each gets it in line
    second.cancel()
    go.set()
    assert [ended(out) for out in await asyncio.gather(first, third)] == ["completed"] * 2
    assert second.cancelled()
    assert (await held(store))["messages"] == ["first", "third"]


def test_an_unknown_mode_is_refused_when_the_graph_is_built(store: Store) -> None:
    with pytest.raises(InvalidInput, match="hopeful"):
        line(nothing, store=store, concurrency="hopeful")


async def test_a_session_deleted_while_a_turn_runs_is_not_brought_back_by_it(store: Store) -> None:
    await line(says("old"), store=store).invoke(session_id="s")

    async def body(_: Any) -> Mapping[str, Any]:
        await store.delete("s")
        return {"messages": ["late"]}

    out = await line(body, store=store).run(session_id="s")
    assert ended(out) == "failed: session_deleted"
    assert out.error is not None
    assert out.error.details()["final_state"].messages == ["old", "late"]
    assert await store.load("s") is None


async def test_an_invocation_id_used_before_is_said_to_be_that(store: Store) -> None:
    graph = line(says("hi"), store=store)
    await graph.invoke(session_id="s", invocation_id="same")
    assert ended(await graph.run(session_id="s", invocation_id="same")) == "failed: invocation_exists"
    assert (await held(store))["messages"] == ["hi"]
