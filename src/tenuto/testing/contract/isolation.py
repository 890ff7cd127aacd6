"""Isolation: a read sees one instant, nobody overwrites another's row, and a cancelled call is not half applied."""

import asyncio
from dataclasses import replace

import pytest

from tenuto.errors import InvalidInput, StoreContended
from tenuto.model.input import InputKind, NewInput
from tenuto.store.backend import columns_of, session_lock
from tenuto.store.rules.plan import Plan, Row, Script, Write
from tenuto.store.rules.rows import SessionRow
from tenuto.store.store import Store
from tenuto.testing.checks import unchanged
from tenuto.testing.factories import a_key, a_save, a_session
from tenuto.testing.harness import Harness


async def test_all_reads_of_a_view_see_the_same_instant(harness: Harness) -> None:
    """Whatever lands meanwhile, through this store or another, waits for no view and shows in none that was open."""
    store, other = await harness.open(), await harness.open()
    key, _ = await a_session(store, None, "a")
    added = a_key()
    async with store.backend.view() as view:
        first = await view.read("stamp_by_key", *columns_of(key))
        async with asyncio.timeout(10):
            await store.commit(a_save(key, "b"))
            await other.commit(a_save(key, "c"))
            await a_session(other, key=added)
        assert await view.read("stamp_by_key", *columns_of(key)) == first
        assert await view.read("session_by_key", *columns_of(added)) == []
    async with store.backend.view() as later:
        assert await later.read("stamp_by_key", *columns_of(key)) != first
        assert await later.read("session_by_key", *columns_of(added)) != []


async def test_a_plan_whose_guard_misses_leaves_nothing_and_is_worth_repeating(store: Store) -> None:
    """A write with `must` has to change one row for each row it lists, however often the plan is decided."""
    key, _ = await a_session(store)
    pinned: list[Row] = []

    def read() -> Script[SessionRow]:
        ((*columns,),) = yield "session_by_key", columns_of(key)
        return SessionRow(*columns)

    def decide(found: SessionRow) -> Plan[str]:
        pinned[:] = [(found.sid, found.life), (found.sid, found.life + 1)]
        return Plan("landed", [Write("delete_receipts_of", [(found.sid,)]), Write("pin_session", pinned, must=True)])

    async with unchanged(store):
        with pytest.raises(StoreContended):
            await store.backend.transact(read, decide, session_lock(key))

    def decide_less(found: SessionRow) -> Plan[str]:
        return replace(decide(found), writes=[Write("pin_session", pinned[:1], must=True)])

    assert await store.backend.transact(read, decide_less, session_lock(key)) == "landed"


async def test_an_id_that_another_session_uses_is_refused(store: Store) -> None:
    """Nobody's row is overwritten, and repeating would not help."""
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    taken = NewInput(kind=InputKind.MESSAGE, body=1, input_id="taken")
    await store.inbox.enqueue(key, taken)
    async with unchanged(store):
        with pytest.raises(InvalidInput, match="used already"):
            await store.inbox.enqueue(other, taken)


async def test_a_cancelled_call_lands_whole_or_not_at_all(store: Store) -> None:
    """At whatever step of the loop it is cancelled, the store works on, and a repeat lands it once."""
    key, _ = await a_session(store)
    for steps in range(20):
        commit = a_save(key, steps)
        task = asyncio.create_task(store.commit(commit))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.commit(commit)
        assert [entry.value for entry in await store.logs.read(key, "messages")] == list(range(steps + 1))
