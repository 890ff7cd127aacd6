"""Lists of what waits: by tenant, kind, user and graph, page by page, and below a session."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tenuto.errors import InvalidInput
from tenuto.model.commit import BeginRun, EndRun, OpenWait, SettleWait
from tenuto.model.run import RunStatus
from tenuto.model.session import ANY_TENANT, Profile, SessionKey
from tenuto.store.store import Store
from tenuto.testing.factories import a_commit, a_key, a_session, an_id
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Harness


async def _waiting(store: Store, key: SessionKey, *waits: OpenWait) -> tuple[str, ...]:
    """Suspend a new run of a session on some waits; return their ids."""
    run = an_id("run")
    begin = BeginRun(run_id=run, invocation_id=f"inv-{run}")
    commit = a_commit(key, run=begin, end=EndRun(status=RunStatus.SUSPENDED), open_waits=waits)
    return (await store.commit(commit)).wait_ids


async def test_open_waits_are_listed_by_every_condition_in_the_order_they_were_opened(harness: Harness) -> None:
    """A tenant's own alone, unless any is asked for; what is settled, and a graph's pause that is over, is left out."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    ada, bob, foreign = a_key(), a_key(), a_key(tenant="other")
    await store.create(ada, profile=Profile(user_id="ada"))
    await store.create(bob, profile=Profile(user_id="bob"))
    await store.create(foreign, profile=Profile(user_id="ada"))
    opened: dict[str, str] = {}
    at: dict[str, datetime] = {}
    parts: list[tuple[str, SessionKey, OpenWait]] = [
        ("a approval", ada, OpenWait(kind="approval")),
        ("b signal", bob, OpenWait(kind="signal", timeout=1.0)),
        ("foreign approval", foreign, OpenWait(kind="approval")),
        ("a pause", ada, OpenWait(kind="signal", graph="g")),
        ("b approval", bob, OpenWait(kind="approval")),
        ("a pause that is over", ada, OpenWait(kind="signal", graph="g", timeout=1.0)),
        ("another's pause", bob, OpenWait(kind="signal", graph="h", timeout=100.0)),
        ("settled", bob, OpenWait(kind="approval")),
    ]
    for name, key, wait in parts:
        clock.advance(1)
        (opened[name],) = await _waiting(store, key, wait)
        found = await store.waits.get(opened[name], tenant=key.tenant)
        assert found is not None
        assert (found.graph, found.invocation_id) == (wait.graph, f"inv-{found.run_id}")
        at[name] = found.created_at
    settled = SettleWait(wait_id=opened["settled"], answer=1)
    await store.commit(a_commit(bob, settle_waits=(settled,)))
    clock.advance(10)

    names = {wait_id: name for name, wait_id in opened.items()}
    mine = ["a approval", "b signal", "a pause", "b approval", "another's pause"]
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({}, mine),
        ({"tenant": "other"}, ["foreign approval"]),
        ({"tenant": ANY_TENANT}, ["a approval", "b signal", "foreign approval", "a pause", "b approval", mine[-1]]),
        ({"tenant": ANY_TENANT, "kind": "approval"}, ["a approval", "foreign approval", "b approval"]),
        ({"kind": "approval"}, ["a approval", "b approval"]),
        ({"kind": "nothing"}, []),
        ({"user_id": "ada"}, ["a approval", "a pause"]),
        ({"user_id": "ada", "kind": "approval"}, ["a approval"]),
        ({"user_id": "ada", "tenant": ANY_TENANT}, ["a approval", "foreign approval", "a pause"]),
        ({"user_id": "nobody"}, []),
        ({"graph": "g"}, ["a pause"]),
        ({"graph": "h"}, ["another's pause"]),
        ({"graph": "g", "tenant": "other"}, []),
        ({"opened_before": at["a pause"]}, ["a approval", "b signal"]),
        ({"opened_before": at["b approval"] + timedelta(microseconds=1), "kind": "approval"}, mine[:1] + mine[3:4]),
        ({"opened_before": at["b signal"], "user_id": "bob"}, []),
    ]
    for given, expected in cases:
        assert [names[wait.wait_id] for wait in await store.waits.open(**given)] == expected, given
        paged: list[str] = []
        after: str | None = None
        while True:
            page = await store.waits.open(**given, limit=2, after=after)
            assert len(page) <= 2
            paged += [names[wait.wait_id] for wait in page]
            if (after := page.next) is None:
                break
        assert paged == expected, given


async def test_a_page_ends_a_list_only_if_nothing_follows(store: Store) -> None:
    """Waits of one commit were opened at the same time, and none is left out or listed twice."""
    key, _ = await a_session(store)
    ids = await _waiting(store, key, *(OpenWait(kind="signal") for _ in range(4)))
    first = await store.waits.open(limit=2)
    rest = await store.waits.open(limit=2, after=first.next)
    assert sorted(wait.wait_id for wait in (*first, *rest)) == sorted(ids)
    assert (first.next is None, rest.next) == (False, None)
    for bad in ("", "1", "x:y", f"{'9' * 30}:w", ":w"):
        with pytest.raises(InvalidInput):
            await store.waits.open(after=bad)


async def test_the_waits_below_a_session_are_those_of_its_descendants(store: Store) -> None:
    """Its own are not among them, nor those of another tenant's session of the same name."""
    root, child, grandchild = a_key(), a_key(), a_key()
    namesake = SessionKey(child.session_id, tenant="other")
    stranger = a_key(tenant="other")
    await store.create(root)
    await store.create(child, profile=Profile(parent=root.session_id, root=root.session_id))
    await store.create(grandchild, profile=Profile(parent=child.session_id, root=root.session_id))
    await store.create(namesake)
    await store.create(stranger, profile=Profile(parent=child.session_id, root=child.session_id))
    opened = {key: (await _waiting(store, key, OpenWait(kind="signal")))[0] for key in (grandchild, root, child)}
    await _waiting(store, stranger, OpenWait(kind="signal"))
    for key, below in ((root, [grandchild, child]), (child, [grandchild]), (grandchild, []), (a_key(), [])):
        assert [wait.wait_id for wait in await store.waits.below(key)] == [opened[each] for each in below]
    (theirs,) = await store.waits.below(namesake)
    assert theirs.key == stranger
