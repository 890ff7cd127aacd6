"""What is expected of sessions: what was loaded and saved, and that the store was left alone."""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.conformance.adapter.checks import Check
from tests.conformance.adapter.records import OUTER, Entry
from tests.conformance.adapter.sessions import Saved, Sessions
from tests.conformance.adapter.vocabulary import FixtureProblem, known, listing, mapping


def _sessions(check: Check) -> Sessions:
    if check.record.sessions is None:
        raise FixtureProblem("something is expected of a session store in a case without one")
    return check.record.sessions


def loaded_session_state(expected: Any, check: Check) -> None:
    """Compare what the store had when the run began."""
    loads = _sessions(check).loads_of(check.run.number)
    if not loads:
        check.problems.append("loaded_session_state: the store was not asked")
        return
    check.equal("loaded_session_state", expected, loads[0].state)


def loaded_scratch(expected: Any, check: Check) -> None:
    """Compare the field `scratch` as the first node found it."""
    entered = check.record.entered(check.run)
    if not entered or "scratch" not in entered[0].state:
        check.problems.append("loaded_invoke_state_for_scratch: no node found a field of that name")
        return
    check.equal("loaded_invoke_state_for_scratch", expected, entered[0].state["scratch"])


def saved_session(expected: Any, check: Check) -> None:
    """Compare the record that the run saved last."""
    given = known(expected, ("state", "schema_version", "excludes_fields"), "saved_session_assertions")
    saves = _sessions(check).saves_of(check.run.number)
    if not saves:
        check.problems.append("saved_session_assertions: the run saved nothing")
        return
    last = saves[-1]
    check.subset("saved_session_assertions.state", mapping(given.get("state") or {}, "state"), last.state)
    if "schema_version" in given:
        check.equal("saved_session_assertions.schema_version", given["schema_version"], last.schema_version)
    for name in listing(given.get("excludes_fields") or [], "excludes_fields"):
        check.holds(f"saved_session_assertions: {name} must not be saved", name not in last.state, last.state)


def _loads(check: Check) -> list[Any]:
    """Return what was loaded; without a store the outcome must say itself that nothing was."""
    if check.record.sessions is None:
        mine = [run for run in check.record.runs if check.is_about(run.number)]
        return [run for run in mine if run.outcome and run.outcome.session_existed is not None]
    return [load for load in check.record.sessions.loads if check.is_about(load.run)]


def _calls(check: Check) -> list[int]:
    """Return every call on the session store, by its run."""
    calls = check.record.sessions.calls if check.record.sessions else []
    return [run for run in calls if check.is_about(run)]


def _saves(check: Check) -> list[Saved]:
    saves = check.record.sessions.saves if check.record.sessions else []
    return [save for save in saves if check.is_about(save.run)]


def no_session_load(expected: Any, check: Check) -> None:
    """See that the store was not called, and that the outcome knows of no session."""
    check.equal("no_session_load", expected, not _loads(check) and not _calls(check))


def no_session_save(expected: Any, check: Check) -> None:
    """See that no session was saved."""
    check.equal("no_session_save", expected, not _saves(check))


def store_untouched(expected: Any, check: Check) -> None:
    """See that the store was not called at all."""
    _sessions(check)
    check.equal("store_untouched", expected, not _calls(check))


def no_auto_save(expected: Any, check: Check) -> None:
    """See that there were no saves but those that nodes asked for."""
    _sessions(check)
    saves = [save for save in _saves(check) if not save.carries]
    asked = [run for run in check.record.explicit_saves if check.is_about(run)]
    check.equal("no_auto_save_on_end", expected, len(saves) == len(asked))


async def store_after(expected: Any, check: Check) -> None:
    """Load from the store, and compare."""
    keys = ("load_returns_for_session_id", "loaded_state", "loaded_schema_version", "load_returns_none_for_session_id")
    given = known(expected, keys, "store_after")
    ids = [given[key] for key in (keys[0], keys[3]) if key in given]
    if len(ids) != 1 or (keys[3] in given and len(given) > 1):
        raise FixtureProblem("store_after must say of one session whether there is one, and only then what it holds")
    record = await _sessions(check).found(str(ids[0]))
    if keys[3] in given:
        check.equal(f"store_after: session {ids[0]}", None, record and dict(record.state))
        return
    if record is None:
        check.problems.append(f"store_after: there is no session {ids[0]}")
        return
    if "loaded_state" in given:
        check.equal("store_after.loaded_state", given["loaded_state"], dict(record.state))
    if "loaded_schema_version" in given:
        check.equal("store_after.loaded_schema_version", given["loaded_schema_version"], record.schema_version)


def _first_inside(check: Check) -> list[Entry]:
    """Return the first bodies of the graphs inside: of each, the node it begins with."""
    structure, entered = check.record.structure, check.record.entered(check.run)
    return [entry for entry in entered if entry.graph != OUTER and structure.entries.get(entry.graph) == entry.node]


def inner_pre_state(expected: Any, check: Check) -> None:
    """Compare the whole state that the subgraph's first node found."""
    entered = _first_inside(check)
    check.equal("inner_pre_state", expected, entered[0].state if entered else None)


def instance_pre_states(expected: Any, check: Check) -> None:
    """Compare the whole state that each instance's first node found, in the order of the items."""
    entered = sorted((entry for entry in _first_inside(check) if _indexes(entry)), key=_indexes)
    check.equal("instance_pre_states", expected, [entry.state for entry in entered])


def _indexes(entry: Entry) -> tuple[int, ...]:
    return tuple(index for index in entry.instance if index is not None)


EXPECTATIONS: dict[str, Callable[[Any, Check], Awaitable[None] | None]] = {
    "inner_pre_state": inner_pre_state,
    "instance_pre_states": instance_pre_states,
    "loaded_invoke_state_for_scratch": loaded_scratch,
    "loaded_session_state": loaded_session_state,
    "no_auto_save_on_end": no_auto_save,
    "no_session_load": no_session_load,
    "no_session_save": no_session_save,
    "saved_session_assertions": saved_session,
    "store_after": store_after,
    "store_untouched": store_untouched,
}


def _second_loads_first(check: Check) -> bool:
    """Tell whether the second run was given what the first one saved."""
    sessions = _sessions(check)
    saved, loaded = sessions.saves_of(0), sessions.loads_of(1)
    return bool(saved) and bool(loaded) and loaded[0].state == saved[-1].state


async def _overwrites(check: Check) -> bool:
    """Tell whether a session was saved by more than one run, and what it holds is what was saved last."""
    saves = _sessions(check).saves
    if len({save.run for save in saves}) < 2:
        return False
    record = await _sessions(check).found(saves[-1].session_id)
    return (
        len({save.session_id for save in saves}) == 1 and record is not None and dict(record.state) == saves[-1].state
    )


def _projected(check: Check) -> set[str]:
    return set(mapping(check.spec.get("session_state") or {}, "session_state").get("fields") or [])


def _scratch_never_saved(check: Check) -> bool:
    scratch = set(check.record.structure.fields[OUTER]) - _projected(check)
    saves = _sessions(check).saves
    return bool(scratch) and bool(saves) and not any(scratch & save.state.keys() for save in saves)


def _projected_persists(check: Check) -> bool:
    saved = _sessions(check).saves_of(0)
    kept = _projected(check)
    return bool(kept) and bool(saved) and kept <= saved[-1].state.keys() and _second_loads_first(check)


async def _survives(check: Check) -> bool:
    """Tell whether the run failed after a save that a node asked for, and the session is as it was saved then."""
    saves = [save for save in _sessions(check).saves if not save.carries]
    if check.run.error is None or [save.run for save in saves] != check.record.explicit_saves or not saves:
        return False
    record = await _sessions(check).found(saves[-1].session_id)
    return record is not None and dict(record.state) == saves[-1].state


def _migrates_first(check: Check) -> bool:
    """Tell whether migrations ran, and the first node found what they made of the record and not the record."""
    entered, loaded = check.record.entered(check.run), _sessions(check).loads_of(check.run.number)
    if not check.record.migration_calls or not entered or not loaded or loaded[0].state is None:
        return False
    return any(entered[0].state.get(name) != value for name, value in loaded[0].state.items())


def _never_invoked(check: Check) -> bool:
    return bool(check.record.runs) and not check.record.entries


def _not_attempted(check: Check) -> bool:
    return check.record.registration_error is not None and not check.record.runs and not check.record.entries


def _own_fields(entered: list[Entry], check: Check) -> bool:
    """Tell whether what runs inside has exactly the fields that its own graph declares."""
    declared = check.record.structure.fields
    return bool(entered) and all(list(entry.state) == declared[entry.graph] for entry in entered)


def _no_outer_field(entered: list[Entry], check: Check) -> bool:
    declared = check.record.structure.fields
    return bool(entered) and not any(
        entry.state.keys() & set(declared[OUTER]) - set(declared[entry.graph]) for entry in entered
    )


def _inside(check: Check) -> list[Entry]:
    graphs = check.record.structure.fields.keys() - {OUTER}
    return [entry for entry in check.record.entered(check.run) if entry.graph in graphs]


def _instances(check: Check) -> list[Entry]:
    return [entry for entry in _inside(check) if _indexes(entry)]


def _only_outermost(entered: list[Entry], check: Check) -> bool:
    """Tell whether, though something ran inside, there was one load and one save."""
    sessions = _sessions(check)
    saves = [save for save in sessions.saves_of(check.run.number) if not save.carries]
    return bool(entered) and len(sessions.loads_of(check.run.number)) == len(saves) == 1


def _events_without_session(check: Check) -> bool:
    events = check.events()
    return bool(events) and not any(hasattr(event, "session_id") for event in events)


TRUTHS: dict[str, Callable[[Check], bool | Awaitable[bool]]] = {
    "fan_out_instance_state_fields_match_subgraph_schema": lambda check: _own_fields(_instances(check), check),
    "fan_out_instances_do_not_see_session_state_directly": lambda check: _no_outer_field(_instances(check), check),
    "mid_invoke_save_survives_subsequent_crash": _survives,
    "migration_runs_before_projection_merge": _migrates_first,
    "no_inner_session_load_or_save": lambda check: _only_outermost(_inside(check), check),
    "no_invoke_attempted": _not_attempted,
    "no_per_instance_session_load_or_save": lambda check: _only_outermost(_instances(check), check),
    "node_event_does_not_carry_session_id_field": _events_without_session,
    "node_never_invoked": _never_invoked,
    "projected_field_persists_across_invokes": _projected_persists,
    "saved_record_overwrites_prior": _overwrites,
    "scratch_field_never_persisted": _scratch_never_saved,
    "second_invoke_loads_first_invoke_state": _second_loads_first,
    "subgraph_does_not_see_session_state_directly": lambda check: _no_outer_field(_inside(check), check),
    "subgraph_state_fields_match_subgraph_schema": lambda check: _own_fields(_inside(check), check),
}
"""Invariants of sessions, which hold or do not; the fixture says which."""
