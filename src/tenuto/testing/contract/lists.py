"""Lists: filters, stable paging, and what they cost."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenuto.errors import InvalidInput
from tenuto.model.session import ANY_TENANT, Kind, Profile, SessionFilter, SessionKey, SessionStatus, SessionSummary
from tenuto.store.store import Store
from tenuto.testing.checks import unchanged
from tenuto.testing.factories import a_commit, a_save, a_session, an_owner, message
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import statements

START = datetime(2030, 1, 1, tzinfo=UTC)


async def _ids(store: Store, **conditions: Any) -> list[str]:
    return [summary.session_id for summary in await store.list(SessionFilter(**conditions))]


async def _two_sessions(harness: Harness) -> Store:
    """Two sessions that differ in everything a filter looks at; `one` is older and was updated last."""
    clock = FakeClock(START)
    store = await harness.open(clock=clock)
    one = Profile(agent="support", user_id="u-1", tags=("vip", "eu"), parent="p-1")
    two = Profile(agent="sales", user_id="u-2", tags=("vip2", "us"), parent="p-2")
    await store.create("one", schema_version="v1", profile=one)
    clock.advance(10)
    await store.create("two", schema_version="v2", profile=two)
    clock.advance(10)
    await store.commit(a_save("one", document={"x": 1}, status=SessionStatus.COMPLETED))
    return store


FITS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["two", "one"]),
    ({"updated_after": START + timedelta(seconds=10)}, ["one"]),
    ({"updated_after": START + timedelta(seconds=20)}, []),
    ({"updated_after": START + timedelta(seconds=9, microseconds=999_999)}, ["two", "one"]),
    ({"created_after": START}, ["two"]),
    ({"created_after": START - timedelta(microseconds=1)}, ["two", "one"]),
    ({"created_after": START + timedelta(seconds=10)}, []),
    ({"schema_version": "v1"}, ["one"]),
    ({"schema_version": "v"}, []),
    ({"schema_version": ""}, []),
    ({"status": SessionStatus.COMPLETED}, ["one"]),
    ({"status": SessionStatus.ACTIVE}, ["two"]),
    ({"status": SessionStatus.DELETED}, []),
    ({"agent": "support"}, ["one"]),
    ({"agent": "Support"}, []),
    ({"user_id": "u-2"}, ["two"]),
    ({"user_id": "u"}, []),
    ({"tag": "vip"}, ["one"]),
    ({"tag": "us"}, ["two"]),
    ({"tag": "e"}, []),
    ({"tag": ""}, []),
    ({"parent": "p-1"}, ["one"]),
    ({"parent": "p-9"}, []),
    ({"agent": "support", "user_id": "u-1", "tag": "eu", "parent": "p-1", "schema_version": "v1"}, ["one"]),
    ({"agent": "sales", "user_id": "u-1"}, []),
    ({"parent": "p-1", "user_id": "u-2"}, []),
    ({"parent": "p-1", "tag": "us"}, []),
    ({"user_id": "u-1", "status": SessionStatus.ACTIVE}, []),
    ({"user_id": "u-1", "created_after": START}, []),
    ({"parent": "p-2", "updated_after": START + timedelta(seconds=10)}, []),
]
"""Conditions, and which of `_two_sessions` they keep."""


async def test_each_filter_keeps_what_fits_and_nothing_else(harness: Harness) -> None:
    """Every condition given must hold; both times are exclusive; a filter may be a mapping too."""
    store = await _two_sessions(harness)
    for condition, found in FITS:
        assert await _ids(store, **condition) == found, condition
        assert [summary.session_id for summary in await store.list(condition)] == found, condition


async def test_tenant_and_kind_are_the_defaults_unless_widened(store: Store) -> None:
    """`ANY_TENANT` is every tenant, and only that, since a caller may lack its own; None is every kind."""
    keys = {
        "plain": SessionKey("x"),
        "other tenant": SessionKey("x", tenant="t2"),
        "bare run": SessionKey("x", kind=Kind.INVOCATION),
    }
    for name, key in keys.items():
        await store.create(key, profile=Profile(title=name, user_id="u", parent="p"))

    async def titles(**conditions: Any) -> set[str | None]:
        return {summary.title for summary in await store.list(SessionFilter(**conditions))}

    for extra in ({}, {"user_id": "u"}, {"parent": "p"}):
        assert await titles(**extra) == {"plain"}
        assert await titles(tenant="t2", **extra) == {"other tenant"}
        assert await titles(tenant=ANY_TENANT, **extra) == {"plain", "other tenant"}
        assert await titles(kind=Kind.INVOCATION, **extra) == {"bare run"}
        assert await titles(kind=None, **extra) == {"plain", "bare run"}
        assert await titles(kind=None, tenant=ANY_TENANT, **extra) == set(keys)
        with pytest.raises(InvalidInput, match="ANY_TENANT"):
            await titles(tenant=None, **extra)


async def test_a_tag_is_matched_whole_whatever_other_tags_contain(store: Store) -> None:
    """Quotes, brackets and backslashes inside a tag do not make it look like another one."""
    tags = ["a", 'x"a', 'a"', 'b","a', "a\\", "[", "é", "%", "ab"]
    for number, tag in enumerate(tags):
        await store.create(f"s-{number}", profile=Profile(tags=("first", tag)))
    for number, tag in enumerate(tags):
        assert await _ids(store, tag=tag) == [f"s-{number}"], tag


async def test_a_list_has_one_summary_per_live_session_newest_first(store: Store) -> None:
    """Without state; deleted sessions and ids without a head are not in it."""
    await a_session(
        store, "s-1", message("a"), message("b"), schema_version="v3", profile=Profile(title="T", agent="A")
    )
    await a_session(store, "s-2", state={"notes": ["n"], "doc": 1}, logs={"notes"})
    await a_session(store, "s-3")
    await store.commit(a_save("s-1", message("c")))
    await store.delete("s-3")
    await store.lanes.acquire("never-saved", an_owner())
    second, first = await store.list()
    assert (first.session_id, second.session_id) == ("s-1", "s-2")
    assert (first.version, first.commit_number, first.schema_version) == (2, 2, "v3")
    assert (first.title, first.agent, first.counts) == ("T", "A", {"messages": 3})
    assert second.counts == {"messages": 0, "notes": 1}
    assert first.damage is None
    assert not hasattr(first, "state")


@needs(Capability.PROBES)
async def test_a_list_reads_no_log_entry_and_no_state(store: Store) -> None:
    """The statements of a list are the same for one session and for thirty with long logs."""
    await a_session(store, None, "m")
    with statements(store) as few:
        await store.list()
    await asyncio.gather(*(a_session(store, None, *range(50), state={"big": "x" * 5000}) for _ in range(29)))
    with statements(store) as many:
        found = await store.list()
    assert len(found) == 30
    assert few == many
    assert not {"entries_of", "bodies_of", "contents_by_hash", "branch_by_id"} & set(many)


@needs(Capability.PROBES)
async def test_counts_are_read_without_reading_entries(store: Store) -> None:
    """The head and `count` know the length of each log from one row."""
    key, _ = await a_session(store, None, *range(7), state={"notes": ["a"]}, logs={"notes"})
    with statements(store) as ran:
        assert await store.logs.count(key, "messages") == 7
        assert await store.logs.count(key, "notes") == 1
        assert await store.logs.count(key, "unknown") == 0
        head = await store.head(key)
    assert head is not None
    assert head.counts == {"messages": 7, "notes": 1}
    assert not {"entries_of", "bodies_of"} & set(ran)


async def test_pages_join_to_the_whole_list(store: Store) -> None:
    """Every page size gives each session once, in the same order, and the last page has no next."""
    for number in range(7):
        await store.create(f"s-{number}", profile=Profile(user_id="u", parent="p"))
    whole = await store.list()
    assert whole.next is None
    for conditions in ({}, {"user_id": "u"}, {"parent": "p"}):
        for limit in (1, 2, 3, 7, 8):
            found: list[SessionSummary] = []
            after, pages = None, 0
            while True:
                page = await store.list(conditions, limit=limit, after=after)
                assert len(page) <= limit
                found += page
                pages += 1
                after = page.next
                if after is None:
                    break
            assert found == list(whole)
            assert pages == -(-7 // limit)
    assert await store.list(limit=0) == ()


async def test_paging_is_stable_while_sessions_come_and_go(store: Store) -> None:
    """A session that lives through the whole listing is on exactly one page."""
    for number in range(12):
        await store.create(f"s-{number}")
    lasting = {f"s-{number}" for number in range(12)} - {"s-11", "s-8", "s-7", "s-2", "s-1"}
    victims = iter(["s-11", "s-8", "s-7", "s-2", "s-1"])
    seen: list[str] = []
    after, round_ = None, 0
    while True:
        page = await store.list(limit=2, after=after)
        seen += [summary.session_id for summary in page]
        after = page.next
        if after is None:
            break
        round_ += 1
        await store.create(f"new-{round_}")
        await store.commit(a_save("s-0", document={"round": round_}))
        if (victim := next(victims, None)) is not None:
            await store.delete(victim)
    assert len(seen) == len(set(seen))
    assert lasting <= set(seen)
    assert not {name for name in seen if name.startswith("new-")}


BAD_FILTERS: tuple[dict[str, Any], ...] = (
    {"colour": "red"},
    {"session_id": "x"},
    {"status": "sleeping"},
    {"kind": "ghost"},
    {"updated_after": datetime(2030, 1, 1)},
    {"created_after": datetime(2030, 1, 1)},
)
IMPOSSIBLE_VALUES: tuple[dict[str, Any], ...] = (
    {"updated_after": "yesterday"},
    {"created_after": 1_700_000_000},
    {"agent": "a\ud800"},
    {"user_id": 7},
    {"tag": "a\ud800"},
    {"tag": 7},
    {"parent": "a\0"},
    {"schema_version": "\ud800"},
    {"tenant": "a\ud800"},
)


@pytest.mark.parametrize("bad", [BAD_FILTERS, IMPOSSIBLE_VALUES], ids=["unknown condition", "impossible value"])
async def test_a_filter_that_cannot_mean_anything_is_refused(store: Store, bad: tuple[dict[str, Any], ...]) -> None:
    """A typed error, not an empty list."""
    await a_session(store)
    async with unchanged(store):
        for conditions in bad:
            with pytest.raises(InvalidInput):
                await store.list(conditions)


async def test_an_unknown_cursor_is_refused(store: Store) -> None:
    """Only what a page gave as `next` continues a list."""
    await a_session(store)
    for bad in ("", "x", "-1", "1.5", "１", " 1", str(2**53), "9" * 30):
        with pytest.raises(InvalidInput):
            await store.list(after=bad)


async def test_an_endless_cursor_is_refused_like_any_other(store: Store) -> None:
    """More digits than Python turns into a number."""
    with pytest.raises(InvalidInput):
        await store.list(after="9" * 5000)


async def test_an_impossible_limit_is_refused(store: Store) -> None:
    """A negative or over-range limit is a typed error."""
    bad: Any
    for bad in (-1, 2**53, 1.5, True, "3"):
        with pytest.raises(InvalidInput):
            await store.list(limit=bad)


async def test_a_status_change_moves_a_session_between_lists(store: Store) -> None:
    """The list follows the status, and the version stays."""
    key, created = await a_session(store)
    active = SessionFilter(status=SessionStatus.ACTIVE)
    (before,) = await store.list(active)
    await store.commit(a_commit(key, status=SessionStatus.FAILED, profile={"failure_reason": "model"}))
    assert await store.list(active) == ()
    (after,) = await store.list(replace(active, status=SessionStatus.FAILED))
    assert (before.version, after.version, after.commit_number) == (1, 1, created.commit_number + 1)
