"""States kept in memory between turns: used only while the store says that they still hold."""

from typing import Any

from tenuto.graph.session.state_cache import StateCache, WarmState
from tenuto.model.session import SessionKey, Stamp
from tenuto.writing.changes import Base

KEY = SessionKey("s")


def state(version: int = 3, *, size: int = 10, life: int = 1, schema_version: str = "v") -> WarmState:
    values: dict[str, Any] = {"messages": ["a", "b"], "mood": "calm"}
    return WarmState(life, schema_version, Base(version=version), values, {"messages": 2}, size)


def stamp(version: int = 3, life: int = 1, schema_version: str = "v", commit: int = 9) -> Stamp:
    return Stamp(life=life, version=version, commit_number=commit, generation=0, schema_version=schema_version)


def test_a_state_is_found_while_life_and_versions_are_the_same() -> None:
    warm = StateCache()
    kept = state()
    warm.put(KEY, kept)
    assert warm.get(KEY, stamp()) is kept
    assert warm.get(KEY, stamp(commit=12)) is kept
    assert warm.get(SessionKey("s", tenant="other"), stamp()) is None


def test_a_session_that_moved_on_in_any_way_is_forgotten() -> None:
    for other in (stamp(version=4), stamp(life=2), stamp(schema_version="w")):
        warm = StateCache()
        warm.put(KEY, state())
        assert warm.get(KEY, other) is None
        assert warm.get(KEY, stamp()) is None


def test_a_log_changed_in_place_is_forgotten_also_under_another_name() -> None:
    for fields, log in ((None, "messages"), ({"history": "messages"}, "history")):
        warm = StateCache(fields=fields)
        kept = state()._replace(counts={log: 2})
        warm.put(KEY, kept)
        assert warm.get(KEY, stamp()) is kept
        kept.values["messages"].append("slipped in")
        assert warm.get(KEY, stamp()) is None


def test_the_states_used_longest_ago_go_first_and_one_too_big_is_not_kept() -> None:
    warm = StateCache(limit=30)
    keys = [SessionKey(f"s{number}") for number in range(4)]
    for key in keys[:3]:
        warm.put(key, state())
    assert warm.get(keys[0], stamp())
    warm.put(keys[3], state())
    assert [warm.get(key, stamp()) is not None for key in keys] == [True, False, True, True]
    warm.put(keys[0], state(size=31))
    assert warm.get(keys[0], stamp()) is None
    warm.put(keys[1], state())
    assert [warm.get(key, stamp()) is not None for key in keys] == [False, True, True, True]


def test_putting_a_state_again_counts_it_once() -> None:
    warm = StateCache(limit=30)
    for _ in range(9):
        warm.put(KEY, state())
    warm.put(SessionKey("t"), state(size=20))
    assert warm.get(KEY, stamp())
    warm.drop(KEY)
    warm.drop(KEY)
    assert warm.get(KEY, stamp()) is None
