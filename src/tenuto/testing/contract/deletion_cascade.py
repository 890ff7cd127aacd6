"""Deleting a tree of sessions: finished wherever it was cut off, and parents get their answers."""

import asyncio
from datetime import UTC, datetime

import pytest

from tenuto.errors import DeliveryLost, SessionNotFound, StoreUnavailable
from tenuto.ids import new_id
from tenuto.model.commit import BeginRun, EndRun, OpenWait, SettleWait
from tenuto.model.outgoing_item import NewOutgoing, OutgoingStatus
from tenuto.model.report import DeleteReport, GcReport
from tenuto.model.run import RunStatus
from tenuto.model.session import Profile, SessionKey
from tenuto.store.store import Store
from tenuto.testing.factories import a_commit, a_key, a_session
from tenuto.testing.faults import FaultyBackend
from tenuto.testing.harness import Harness


async def test_a_delete_of_a_parent_leaves_children_and_forks_and_names_them(store: Store) -> None:
    """The second call is a no-op and names nobody."""
    parent, _ = await a_session(store, None, "p")
    child, _ = await a_session(store, profile=Profile(parent=parent.session_id, root=parent.session_id))
    stranger, _ = await a_session(store, key=a_key(tenant="other"), profile=Profile(parent=parent.session_id))
    fork = a_key()
    await store.fork(parent, fork)
    report = await store.delete(parent)
    assert (report.sessions, report.children, report.forks) == (1, (child,), (fork,))
    for key in (child, stranger, fork):
        assert await store.exists(key)
    assert await store.delete(parent, cascade=True) == DeleteReport()
    assert await store.exists(child)


async def test_cascade_deletes_the_childrens_tree_and_never_forks(store: Store) -> None:
    """One report counts it all and names the forks that stay."""
    root, _ = await a_session(store, None, "r")
    child, _ = await a_session(store, None, "c", profile=Profile(parent=root.session_id, root=root.session_id))
    grand, _ = await a_session(store, None, "g", profile=Profile(parent=child.session_id, root=root.session_id))
    fork, bystander = a_key(), (await a_session(store))[0]
    await store.fork(child, fork)
    report = await store.delete(root, cascade=True)
    assert (report.sessions, report.forks) == (3, (fork,))
    for key in (root, child, grand):
        assert not await store.exists(key)
    loaded = await store.load(fork)
    assert loaded is not None
    assert loaded.state["messages"] == ["c"]
    assert await store.exists(bystander)
    before = await store.dump()
    assert await store.delete(root, cascade=True) == report
    assert await store.delete(root) == DeleteReport()
    assert await store.dump() == before
    assert await store.upkeep.gc(grace=0) == GcReport()
    assert (await store.dump())["deletion"] == []
    assert await store.delete(root, cascade=True) == DeleteReport()


async def _tree(store: Store, width: int = 2) -> tuple[SessionKey, list[SessionKey]]:
    """Create a root with children, of which each has a child; return the root and all below it."""
    root, _ = await a_session(store, None, "root")
    below: list[SessionKey] = []
    for _ in range(width):
        child, _ = await a_session(store, None, "c", profile=Profile(parent=root.session_id, root=root.session_id))
        grand, _ = await a_session(store, None, "g", profile=Profile(parent=child.session_id, root=root.session_id))
        below += [child, grand]
    return root, below


async def test_a_cascade_that_was_cut_off_anywhere_is_finished_by_a_repeat(harness: Harness) -> None:
    """The report of the repeat is the whole report, also if only the last reply was lost."""
    faults = FaultyBackend((await harness.open()).backend)
    store = Store(faults)
    root, _ = await _tree(store)
    before = faults.transactions
    whole = await store.delete(root, cascade=True)
    assert whole.sessions == 5
    for nth in range(1, faults.transactions - before + 1):
        root, below = await _tree(store)
        faults.lose_reply(nth)
        with pytest.raises(StoreUnavailable):
            await store.delete(root, cascade=True)
        faults.heal()
        report = await store.delete(root, cascade=True)
        counted = [report.sessions, report.receipts, len(report.children)]
        assert counted == [whole.sessions, whole.receipts, len(whole.children)], nth
        assert [await store.exists(key) for key in (root, *below)] == [False] * 5
    assert await store.upkeep.gc(grace=0) == GcReport()
    dump = await store.dump()
    assert {table for table, found in dump.items() if found} == {"session"}


@pytest.mark.parametrize("verb", ["gc", "finish_deletes"])
async def test_upkeep_finishes_a_cascade_that_was_cut_off(harness: Harness, verb: str) -> None:
    faults = FaultyBackend((await harness.open()).backend)
    store = Store(faults)
    root, below = await _tree(store)
    faults.fail_call(2)
    with pytest.raises(StoreUnavailable):
        await store.delete(root, cascade=True)
    faults.heal()
    left = [key for key in below if await store.exists(key)]
    assert left
    assert not await store.exists(root)
    done = await getattr(store.upkeep, verb)()
    assert (done.sessions if verb == "gc" else done) >= len(left)
    assert not any([await store.exists(key) for key in below])
    assert (await store.delete(root, cascade=True)).sessions == 5


async def test_a_cascade_ends_each_session_in_the_life_it_had(harness: Harness) -> None:
    """Ids that were used again meanwhile live on, and so do the new children of a root that was begun again."""
    faults = FaultyBackend((await harness.open()).backend)
    store = Store(faults)
    root, below = await _tree(store)
    faults.fail_call(2)
    with pytest.raises(StoreUnavailable):
        await store.delete(root, cascade=True)
    faults.heal()
    assert (await store.dump())["deletion"]
    again = below[0]
    await store.delete(again)
    await a_session(store, key=again)
    await a_session(store, key=root)
    child, _ = await a_session(store, profile=Profile(parent=root.session_id))
    await store.upkeep.finish_deletes()
    assert [await store.exists(key) for key in (root, again, child)] == [True] * 3
    assert not any([await store.exists(key) for key in below[1:]])  # also of a child that was deleted without its own
    assert (await store.delete(root, cascade=True)).children == (child,)


async def test_a_child_begun_as_its_parent_ends_is_ended_with_it_or_not_begun(store: Store) -> None:
    for _ in range(20):
        root, _ = await _tree(store, 1)
        life = await store.life(root)
        late = a_key()
        creating = store.create(late, profile=Profile(parent=root.session_id), parent_life=life)
        async with asyncio.timeout(20):
            found = await asyncio.gather(store.delete(root, cascade=True), creating, return_exceptions=True)
        assert isinstance(found[0], DeleteReport)
        assert isinstance(found[1], SessionNotFound) or found[0].sessions == 4
        assert not await store.exists(late)


async def test_a_child_needs_its_parent_in_the_life_it_was_seen_in(store: Store) -> None:
    root, _ = await a_session(store)
    life = await store.life(root)
    await store.delete(root)
    for lives_again in (False, True):
        if lives_again:
            await a_session(store, key=root)
        before = await store.dump()
        with pytest.raises(SessionNotFound):
            await store.create(a_key(), profile=Profile(parent=root.session_id), parent_life=life)
        assert await store.dump() == before


async def _asking(store: Store, child: SessionKey, parent: SessionKey | None = None) -> tuple[SessionKey, list[str]]:
    """Let a parent wait twice for a child, and for something else."""
    parent = parent or (await a_session(store))[0]
    await a_session(store, key=child, profile=Profile(parent=parent.session_id))
    run = BeginRun(run_id=new_id(), invocation_id=new_id())
    names: list[dict[str, str]] = [
        {"child": child.session_id, "token": "t1"},
        {"child": child.session_id, "token": "t2"},
        {"child": "somebody else", "token": "t3"},
    ]
    waits = (*(OpenWait(kind="child", metadata=each) for each in names), OpenWait(kind="signal", metadata=names[0]))
    receipt = await store.commit(
        a_commit(
            parent, run=run, open_waits=waits, end=EndRun(status=RunStatus.SUSPENDED), life=await store.life(parent)
        )
    )
    return parent, list(receipt.wait_ids)


@pytest.mark.parametrize("verb", ["delete", "expire", "cascade"])
async def test_whoever_deletes_a_child_owes_its_parent_an_answer(store: Store, verb: str) -> None:
    """With the tombstone: nothing lies between the two. It stays until it is delivered, and then goes too."""
    child = a_key()
    parent, waits = await _asking(store, child)
    answered = SettleWait(wait_id=waits[1], answer={"result": 1})
    await store.commit(a_commit(parent, settle_waits=(answered,)))
    match verb:
        case "expire":
            past = datetime(2000, 1, 1, tzinfo=UTC)
            await store.commit(a_commit(child, profile={"expires_at": past}))
            assert (await store.upkeep.expire()).deleted == (child,)
        case _:
            assert (await store.delete(child, cascade=verb == "cascade")).sessions == 1
    (owed,) = await store.outbox.pending()
    assert (owed.kind, owed.key, owed.target) == ("child_result", child, parent)
    assert owed.body["token"] == "t1"
    assert owed.body["error"]["category"] == "child_lost"
    assert await store.outbox.of_session(child) == []
    assert await store.delete(child) == DeleteReport()
    await a_session(store, key=child)
    assert await store.outbox.of_session(child) == []
    await store.delete(child)
    (left,) = await store.outbox.pending()
    assert left == owed
    await store.outbox.mark(owed.outbox_id, OutgoingStatus.DONE)
    assert (await store.dump())["outgoing"] == []
    with pytest.raises(DeliveryLost):
        await store.outbox.mark(owed.outbox_id, OutgoingStatus.DONE)


async def test_a_deleted_childs_result_that_is_on_its_way_arrives(store: Store) -> None:
    """It is what the parent gets then; stops stay owed as well, and all else it sent goes."""
    child = a_key()
    parent, _ = await _asking(store, child)
    sent = [("child_result", {"token": "t2", "result": 5}), ("stop_child", {"token": "x"}), ("child", {}), ("wake", {})]
    outgoing = tuple(NewOutgoing(kind=kind, target=parent, body=body) for kind, body in sent)
    await store.commit(a_commit(child, outgoing=outgoing))
    report = await store.delete(child)
    assert report.outgoing == 2
    owed = {(each.kind, each.body["token"]): each.body for each in await store.outbox.pending()}
    assert owed.keys() == {("child_result", "t2"), ("stop_child", "x"), ("child_result", "t1")}
    assert owed["child_result", "t2"]["result"] == 5


async def test_a_child_whose_parent_is_gone_owes_nothing(store: Store) -> None:
    child, again = a_key(), a_key()
    parent, _ = await _asking(store, child)
    await store.delete(parent)
    await store.delete(child)
    parent, _ = await _asking(store, again)
    await store.delete(parent, cascade=True)
    assert await store.outbox.pending() == []
    assert not await store.exists(again)
