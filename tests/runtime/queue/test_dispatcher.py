"""Draining a queue: what is open is looked at once, and whatever comes in meanwhile still gets its turn in order."""

from collections import Counter
from typing import Any

import pytest

from tenuto.errors import InvalidInput
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tenuto.store.store import Store
from tests.conftest import OurHarness
from tests.runtime.runtimes import opened
from tests.runtime.seams import advance


def texts(session: Any) -> list[str]:
    return [message["content"] for message in session.messages]


def answered(*said: str) -> list[str]:
    return [text for each in said for text in (each, f"re: {each}")]


class Calls(Counter[str]):
    """Counts what is asked of a store: transactions, and reads by name."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._backend: Any = store.backend
        for verb in ("transact", "read", "glance"):
            monkeypatch.setattr(self._backend, verb, self._counting(verb, getattr(self._backend, verb)))

    def _counting(self, verb: str, call: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            name = verb if verb == "transact" else arguments[0]
            if name != "stops_of_runs":
                self[name] += 1
            return call(*arguments, **options)

        return counted


@program
async def replies(turn: Turn) -> None:
    said: Any = turn.input
    turn.append({"role": "assistant", "content": f"re: {said['content']}"})


@pytest.fixture
async def runtime(store: Store) -> SessionRuntime:
    made = await opened(store, [replies])
    await made.create("replies", session_id="s")
    return made


async def test_each_queued_turn_is_one_commit_more_and_what_is_open_is_looked_at_once(
    runtime: SessionRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    await runtime.send("s", "warm up")
    queued = [str(number) for number in range(5)]
    for each in queued:
        await runtime.session("s").enqueue(each)
    calls = Calls(runtime.store, monkeypatch)
    assert await advance(runtime, "s")
    assert dict(calls) == {"transact": 1 + len(queued), "open_inputs": 1}
    assert texts(await runtime.get("s")) == answered("warm up", *queued)


async def test_a_longer_queue_is_looked_at_a_part_at_a_time_and_drained_in_order(runtime: SessionRuntime) -> None:
    queued = [str(number) for number in range(40)]
    for each in queued:
        await runtime.session("s").enqueue(each)
    await advance(runtime, "s")
    assert texts(await runtime.get("s")) == answered(*queued)
    assert await runtime.store.inbox.list("s") == ()


async def test_what_comes_in_while_a_queue_is_drained_is_drained_with_it(store: Store, harness: OurHarness) -> None:
    elsewhere = await opened(await harness.open(), [replies])

    @program
    async def slow(turn: Turn) -> None:
        said: Any = turn.input
        if said["content"] == "one":
            await elsewhere.session("s").enqueue("three")
        if said["content"] == "three":
            await elsewhere.session("s").enqueue("four", boundary="before_completion")
        turn.append({"role": "assistant", "content": f"re: {said['content']}"})

    runtime = await opened(store, [slow])
    await runtime.create("slow", session_id="s")
    for each in ("one", "two"):
        await runtime.session("s").enqueue(each)
    await advance(runtime, "s")
    assert texts(await runtime.get("s")) == answered("one", "two", "three", "four")
    assert await store.inbox.list("s") == ()


async def test_what_is_taken_back_while_a_queue_is_drained_gets_no_turn(store: Store, harness: OurHarness) -> None:
    elsewhere = await opened(await harness.open(), [replies])
    ids: dict[str, str] = {}

    @program
    async def slow(turn: Turn) -> None:
        said: Any = turn.input
        if said["content"] == "one":
            await elsewhere.session("s").cancel(ids["two"])
        turn.append({"role": "assistant", "content": f"re: {said['content']}"})

    runtime = await opened(store, [slow])
    await runtime.create("slow", session_id="s")
    for each in ("one", "two", "three"):
        ids[each] = await runtime.session("s").enqueue(each)
    await advance(runtime, "s")
    assert texts(await runtime.get("s")) == answered("one", "three")


async def test_a_command_between_messages_is_carried_out_between_their_turns(runtime: SessionRuntime) -> None:
    from tenuto.runtime.change.action import ClearSession

    await runtime.session("s").enqueue("one")
    await runtime.session("s").enqueue(ClearSession())
    await runtime.session("s").enqueue("two")
    await advance(runtime, "s")
    assert texts(await runtime.get("s")) == answered("two")


async def test_a_message_for_later_does_not_hold_up_those_behind_it(runtime: SessionRuntime) -> None:
    from datetime import UTC, datetime, timedelta

    later = await runtime.session("s").enqueue("later", due_at=datetime.now(UTC) + timedelta(hours=1))
    for each in ("one", "two"):
        await runtime.session("s").enqueue(each)
    await advance(runtime, "s")
    assert texts(await runtime.get("s")) == answered("one", "two")
    assert [each.input_id for each in await runtime.store.inbox.list("s")] == [later]


async def test_only_the_last_commits_receipt_is_kept_of_a_session_in_use(runtime: SessionRuntime) -> None:
    for number in range(5):
        await runtime.send("s", str(number))
    rows = (await runtime.store.dump())["receipt"]
    session = (await runtime.store.dump())["session"][0]
    numbers = [row["commit_no"] for row in rows]
    assert numbers == [1, session["commit_no"]]  # that of its creation was never said to have been heard
    with pytest.raises(InvalidInput):
        await runtime.outcome("unknown")
