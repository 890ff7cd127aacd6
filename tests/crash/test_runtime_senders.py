"""Messages to one session from several processes at once, in each way of being busy; keys, outcomes and stops."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tenuto import Store
from tenuto.model.input import InputStatus
from tenuto.model.run import RunStatus
from tenuto.runtime.runtime import SessionRuntime
from tests.crash.processes import Database
from tests.crash.runtime_senders import Sender, clerk, noted, notes, senders
from tests.runtime.runtimes import opened

SHARES = (["one", "two"], ["three"], ["four"], ["five"])
TEXTS = [text for share in SHARES for text in share]


@asynccontextmanager
async def here(database: Database, *sessions: str) -> AsyncIterator[tuple[Store, SessionRuntime]]:
    """A runtime of this process; it makes these sessions."""
    async with database.open() as store:
        runtime = await opened(store, [clerk(database.folder)])
        for name in sessions:
            await runtime.create("clerk", session_id=name)
        yield store, runtime


def release(database: Database) -> None:
    (database.folder / "release").touch()


async def talk_of(runtime: SessionRuntime, session: str = "chat") -> list[str]:
    messages: Any = (await runtime.get(session)).messages
    return [message["content"] for message in messages]


def one_after_the_other(database: Database) -> list[str]:
    """Return the messages whose turns ran, in order; none began before the one before it had ended."""
    found = notes(database.folder)
    begun = [line.removeprefix("begin ") for line in found[::2]]
    assert found == [line for text in begun for line in (f"begin {text}", f"end {text}")]
    return begun


async def check_order(store: Store, outcomes: list[Any], ran: list[str]) -> None:
    """Check that what was queued ran in order of arrival; what found the session idle arrived as it began."""
    queued = []
    for each in outcomes:
        row = await store.inbox.get(each["input_id"])
        if row is None:
            assert each["input_id"] == each["run_id"]
        else:
            assert row.settled_at != row.created_at
            queued.append((row.seq, each["text"]))
    texts = [text for _, text in sorted(queued)]
    assert texts == [text for text in ran if text in texts]


async def all_heard(processes: list[Sender], shares: tuple[list[str], ...] = SHARES) -> list[Any]:
    return [await each.heard() for each, share in zip(processes, shares, strict=True) for _ in share]


async def test_queued_messages_all_get_their_turn_in_order_and_none_is_interleaved(database: Database) -> None:
    async with here(database, "chat") as (store, runtime), senders(database) as processes:
        for each, share in zip(processes, SHARES, strict=True):
            each.order("send", session="chat", texts=share, when_busy="queue")
        async with asyncio.timeout(60):
            while len(await store.inbox.list("chat")) < 4:
                await asyncio.sleep(0.005)
        release(database)
        outcomes = await all_heard(processes)
        assert [(each["status"], each["reply"]) for each in outcomes] == [
            ("completed", f"re: {each['text']}") for each in outcomes
        ]
        ran = one_after_the_other(database)
        assert sorted(ran) == sorted(TEXTS)
        await check_order(store, outcomes, ran)
        assert ran.index("one") < ran.index("two")
        assert await talk_of(runtime) == [word for text in ran for word in (text, f"re: {text}")]
        assert [each.status for each in await runtime.session("chat").runs()] == [RunStatus.COMPLETED] * 5
        assert await store.inbox.list("chat") == ()


async def test_of_messages_that_are_rejected_one_wins_and_four_are_refused(database: Database) -> None:
    async with here(database, "chat") as (store, runtime), senders(database) as processes:
        for each, share in zip(processes, SHARES, strict=True):
            each.order("send", session="chat", texts=share, when_busy="reject")
        said: asyncio.Queue[Any] = asyncio.Queue()

        async def listen(process: Sender, times: int) -> None:
            for _ in range(times):
                said.put_nowait(await process.heard())

        listening = [asyncio.create_task(listen(*each)) for each in zip(processes, map(len, SHARES), strict=True)]
        refused = [await said.get() for _ in range(4)]
        assert {(each["status"], each["category"]) for each in refused} == {("LaneBusy", "session_execution_busy")}
        await noted(database.folder, "begin ")
        before = await store.dump()
        assert (len(before["input"]), len(before["run"])) == (0, 1)
        release(database)
        await asyncio.gather(*listening)
        winner = said.get_nowait()
        assert winner["status"] == "completed"
        assert {each["text"] for each in refused} | {winner["text"]} == set(TEXTS)
        assert await talk_of(runtime) == [winner["text"], winner["reply"]]
        assert one_after_the_other(database) == [winner["text"]]


@pytest.mark.parametrize("policy", ["interrupt", "rollback"])
async def test_messages_that_make_room_stop_the_turn_under_way_and_all_get_theirs(
    database: Database, policy: str
) -> None:
    shares = (["two"], ["three"], ["four"], ["five"])
    async with here(database, "chat") as (store, runtime), senders(database, 5) as (first, *others):
        first.order("send", session="chat", texts=["one"])
        await noted(database.folder, "begin one")
        for each, share in zip(others, shares, strict=True):
            each.order("send", session="chat", texts=share, when_busy=policy)
        stopped = await first.heard()
        assert stopped["status"] == "interrupted"
        release(database)
        outcomes = await all_heard(others, shares)
        assert {each["status"] for each in outcomes} <= {"completed", "interrupted", "rolled_back"}
        ran = one_after_the_other(database)
        assert ran[0] == "one"
        assert sorted(ran) == sorted(TEXTS)
        await check_order(store, [stopped, *outcomes], ran)
        runs = {each["text"]: await store.runs.get(each["run_id"]) for each in (stopped, *outcomes)}
        taken_back = {text for text, run in runs.items() if run and run.rolled_back}
        rows = {each["text"]: await store.inbox.get(each["input_id"]) for each in (stopped, *outcomes)}
        assert {row.status for row in rows.values() if row} == {InputStatus.CONSUMED}
        assert {text for text, row in rows.items() if row and row.rolled_back} == taken_back & {
            text for text, row in rows.items() if row
        }
        completed = {each["text"] for each in outcomes if each["status"] == "completed"}
        assert ran[-1] in completed
        assert taken_back.isdisjoint(completed)
        if policy == "rollback":
            assert taken_back == set(ran) - completed
        else:
            assert taken_back == set()
        expected = []
        for text in ran:
            expected += [text] * (text not in taken_back) + [f"re: {text}"] * (text in completed)
        assert await talk_of(runtime) == expected
        state = await others[0].do("outcome", input_id=stopped["input_id"])
        assert state[0] == ("rolled_back" if policy == "rollback" else "interrupted")


@pytest.mark.parametrize("policy", ["queue", "reject"])
async def test_one_key_from_four_processes_at_once_is_one_turn(database: Database, policy: str) -> None:
    async with here(database, "chat") as (_, runtime), senders(database) as processes:
        for each in processes:
            each.order("send", session="chat", texts=["only"], key="k", when_busy=policy)
        await noted(database.folder, "begin only")
        late = processes[0]
        late.order("send", session="chat", texts=["only"], key="k", when_busy=policy)
        late.order("send", session="chat", texts=["another"], key="k", when_busy=policy)
        release(database)
        heard = [await each.heard() for each in processes] + [await late.heard(), await late.heard()]
        conflicts = [each for each in heard if each["text"] == "another"]
        assert [each["status"] for each in conflicts] == ["OperationConflict"]
        same = [each for each in heard if each["text"] == "only"]
        if policy == "reject":  # whoever looked before the winner's message was there could not know
            same = [each for each in same if each["status"] != "LaneBusy"]
            assert len(same) >= 2
        assert {(each["status"], each["reply"]) for each in same} == {("completed", "re: only")}
        assert len({(each["run_id"], each["input_id"]) for each in same}) == 1
        again = await processes[3].do("send", session="chat", texts=["only"], key="k", when_busy=policy)
        assert again["run_id"] == same[0]["run_id"]
        assert await talk_of(runtime) == ["only", "re: only"]
        assert one_after_the_other(database) == ["only"]


async def test_the_outcome_of_an_input_is_known_to_every_process(database: Database) -> None:
    async with here(database, "chat") as (_, runtime), senders(database, 2) as (sender, other):
        sender.order("send", session="chat", texts=["one"])
        await noted(database.folder, "begin one")
        queued = await runtime.session("chat").enqueue("two")
        (run,) = await runtime.session("chat").runs()
        running = run.run_id
        assert await other.do("outcome", input_id=running) == ["running", run.run_id, ""]
        assert await other.do("outcome", input_id=queued) == ["queued", None, ""]
        release(database)
        assert (await sender.heard())["status"] == "completed"
        assert await other.do("outcome", input_id=running) == ["completed", run.run_id, "re: one"]
        assert await other.do("drain", concurrency=2) == "drained"
        assert (await sender.do("outcome", input_id=queued))[::2] == ["completed", "re: two"]


@pytest.mark.parametrize(("kind", "status"), [("interrupt", "interrupted"), ("abort", "failed")])
async def test_a_stop_outlives_the_process_that_asked_for_it(database: Database, kind: str, status: str) -> None:
    async with here(database, "chat") as (_, runtime), senders(database, 2) as (sender, asker):
        sender.order("send", session="chat", texts=["one"])
        await noted(database.folder, "begin one")
        assert await asker.do("stop", session="chat", kind=kind) == "recorded"
        asker.kill()
        assert (await sender.heard())["status"] == status
        (info,) = await runtime.session("chat").runs()
        assert info.run.error["message"] == "from another process"
        release(database)
        again = await sender.do("send", session="chat", texts=["two"])
        assert again["status"] == "completed"
        assert await talk_of(runtime) == ["one", "two", "re: two"]


async def test_ids_of_inputs_minted_at_the_same_moment_differ(database: Database) -> None:
    async with here(database, "chat") as (store, _), senders(database) as processes:
        for each in processes:
            each.order("enqueue", session="chat", count=25)
        ids = [input_id for each in processes for input_id in await each.heard()]
        assert len(set(ids)) == 100
        listed = await store.inbox.list("chat", limit=200)
        assert {each.input_id for each in listed} == set(ids)
        assert [each.seq for each in listed] == sorted({each.seq for each in listed})


async def test_workers_in_several_processes_do_every_turn_once(database: Database) -> None:
    release(database)
    names = [f"session {number}" for number in range(8)]
    async with here(database, *names) as (_, runtime), senders(database, 3) as processes:
        texts = [(name, f"{name} message {number}") for number in range(3) for name in names]
        ids = [await runtime.session(name).enqueue(text) for name, text in texts]
        for each in processes:
            each.order("drain", concurrency=3)
        assert [await each.heard() for each in processes] == ["drained"] * 3
        await runtime.drain()
        begun = [line for line in notes(database.folder) if line.startswith("begin ")]
        assert sorted(begun) == sorted(f"begin {text}" for _, text in texts)
        assert {str((await runtime.outcome(each)).status) for each in ids} == {"completed"}
        for name in names:
            own = [text for other, text in texts if other == name]
            assert await talk_of(runtime, name) == [word for text in own for word in (text, f"re: {text}")]
