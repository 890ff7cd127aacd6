"""Bad input: what cannot be kept, or cannot be meant, is refused by a typed error before anything is written."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from typing import Any

import pytest

from tenuto.errors import InvalidInput, NotJson, TenutoError
from tenuto.model.commit import Append, BeginRun, EndRun, Held, NewCheckpoint, OpenWait, Reset, SettleWait, TakeRun
from tenuto.model.effect import EffectKind, FinishEffect, StartEffect
from tenuto.model.event import NewEvent
from tenuto.model.input import InputKind, NewInput
from tenuto.model.lane import Rearm
from tenuto.model.outgoing_item import NewOutgoing
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import LogEnd, Profile, SessionKey, SessionRecord
from tenuto.store.store import Store
from tenuto.testing.checks import damaged, not_refused, unchanged
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, an_owner
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import statements

TOO_MUCH = 2**53


class _Colour(Enum):
    RED = "red"


def _nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def _endless() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


NOT_JSON: dict[str, Any] = {
    "NaN": float("nan"),
    "infinity": float("inf"),
    "minus infinity": float("-inf"),
    "lone surrogate": "a\ud800",
    "lone surrogate key": {"a\udfff": 1},
    "number key": {1: "a"},
    "None key": {None: "a"},
    "datetime": datetime(2030, 1, 1, tzinfo=UTC),
    "date": datetime(2030, 1, 1, tzinfo=UTC).date(),
    "tuple": (1, 2),
    "set": {1, 2},
    "bytes": b"a",
    "enum": _Colour.RED,
    "object": object(),
    "model": Profile(),
    "too deep": _nested(101),
    "endless": _endless(),
}


BEGIN = BeginRun(run_id="r", invocation_id="i")
PLACES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "document.d": lambda v: {"save": True, "document": {"fine": 1, "d": v}},
    "messages[1]": lambda v: {"save": True, "logs": {"messages": Append(items=("fine", v))}},
    "messages[0]": lambda v: {"save": True, "logs": {"messages": Reset(items=(v,))}},
    "checkpoint.cursor": lambda v: {"run": BEGIN, "checkpoint": NewCheckpoint(step=1, cursor=v)},
    "checkpoint.document.d": lambda v: {"run": BEGIN, "checkpoint": NewCheckpoint(step=1, document={"d": v})},
    "open_waits[0].schema": lambda v: {"run": BEGIN, "open_waits": (OpenWait(kind="k", schema=v),)},
    "open_waits[0].metadata": lambda v: {"run": BEGIN, "open_waits": (OpenWait(kind="k", metadata=v),)},
    "settle_waits.answer": lambda v: {"settle_waits": (SettleWait(wait_id="w", answer=v),)},
    "event e": lambda v: {"events": (NewEvent(type="e", data=v),)},
    "end.error": lambda v: {"run": BEGIN, "end": EndRun(status=RunStatus.FAILED, error=v)},
    "end.outcome": lambda v: {"run": BEGIN, "end": EndRun(status=RunStatus.COMPLETED, outcome=v)},
    "inputs[0].body": lambda v: {"inputs": (NewInput(kind=InputKind.MESSAGE, body=v),)},
    "effects[0].request": lambda v: {"run": BEGIN, "effects": (StartEffect(key="k", kind=EffectKind.TOOL, request=v),)},
    "effects[0].result": lambda v: {"run": BEGIN, "effects": (FinishEffect(key="k", result=v),)},
    "effects[0].error": lambda v: {"run": BEGIN, "effects": (FinishEffect(key="k", error=v),)},
    "outgoing[0].body": lambda v: {"outgoing": (NewOutgoing(kind="k", target=SessionKey("t"), body=v),)},
    "metadata": lambda v: {"profile": {"metadata": v}},
    "definition": lambda v: {"profile": {"definition": v}},
    "trace": lambda v: {"profile": {"trace": v}},
}


@needs(Capability.PROBES)
async def test_a_value_that_is_not_json_is_refused_wherever_it_stands(store: Store) -> None:
    """In every part of a commit, before any statement; the error names the path."""
    key, _ = await a_session(store, None, "a")
    async with unchanged(store):
        with statements(store) as ran:
            for bad in NOT_JSON.values():
                for path, part in PLACES.items():
                    with pytest.raises(NotJson) as refused:
                        await store.commit(a_commit(key, **part({"ok": [0, bad]})))
                    assert refused.value.path.startswith(f"{path}.ok[1]"), path
        assert ran == []


async def test_create_and_save_refuse_what_is_not_json(store: Store) -> None:
    """In the state, in the profile, and in what a log grew by."""
    key, _ = await a_session(store, None, "a")

    def saving(state: Any) -> Callable[[], Awaitable[object]]:
        return lambda: store.save(key, SessionRecord(session_id=key.session_id, state=state))

    calls: dict[str, Callable[[], Awaitable[object]]] = {}
    for name, bad in NOT_JSON.items():
        inside = {"ok": [0, bad]}
        calls[f"create {name}"] = lambda v=inside: store.create(a_key(), state={"d": v})  # type: ignore[misc]
        calls[f"profile {name}"] = lambda v=inside: store.create(a_key(), profile=Profile(metadata=v))  # type: ignore[misc]
        calls[f"save {name}"] = saving({"messages": ["a"], "d": inside})
        calls[f"log {name}"] = saving({"messages": ["a", inside]})
    async with unchanged(store):
        assert await not_refused(NotJson, calls) == {}


async def test_a_bad_entry_in_the_known_part_of_a_saved_log_is_refused(store: Store) -> None:
    """Comparing a record with what is stored does not let a value through, or out untyped."""
    key, _ = await a_session(store, None, [1, 2], "2030-01-01T00:00:00Z", "red")

    def saving(*items: Any) -> Callable[[], Awaitable[object]]:
        return lambda: store.save(key, SessionRecord(session_id=key.session_id, state={"messages": list(items)}))

    calls = {f"{name} first": saving(bad) for name, bad in NOT_JSON.items()}
    calls |= {f"{name} second": saving([1, 2], bad) for name, bad in NOT_JSON.items()}
    calls |= {f"{name} inside": saving([1, bad], "x", "y") for name, bad in NOT_JSON.items()}
    calls["enum that looks alike"] = saving([1, 2], "2030-01-01T00:00:00Z", _Colour.RED)
    async with unchanged(store):
        assert await not_refused(NotJson, calls) == {}


async def test_a_value_nested_as_deep_as_allowed_reads_back(store: Store) -> None:
    """A hundred levels stand; in a document, a log, a checkpoint and an event."""
    deep = _nested(100)
    key, _ = await a_session(store, None, deep, state={"d": deep})
    begin = BeginRun(run_id="r", invocation_id="i")
    point = NewCheckpoint(step=1, cursor=deep, document={"d": deep})
    await store.commit(a_commit(key, run=begin, checkpoint=point, events=(NewEvent(type="e", data=deep),)))
    record, latest = await store.load(key), await store.checkpoints.latest(key)
    assert record is not None
    assert latest is not None
    assert record.state == {"messages": [deep], "d": deep}
    assert (latest.cursor, latest.document) == (deep, {"d": deep})
    assert (await store.events.read(key)).events[0].data == deep


@pytest.mark.parametrize("bad", ["a\0b", "a\ud800"], ids=["NUL", "lone surrogate"])
async def test_a_text_no_backend_can_keep_is_refused_in_every_name(store: Store, bad: str) -> None:
    """The same typed refusal on every backend, for each text column a commit can fill or look up."""
    key, _ = await a_session(store)
    begin = BeginRun(run_id="r", invocation_id="i")
    names: dict[str, dict[str, Any]] = {
        "operation_id": {"operation_id": bad},
        "document field": {"save": True, "document": {bad: 1}},
        "log": {"save": True, "logs": {bad: Append(items=(1,))}},
        "schema_version": {"save": True, "schema_version": bad},
        "removed": {"save": True, "removed": frozenset({bad})},
        "checkpoint.schema_version": {"run": begin, "checkpoint": NewCheckpoint(step=1, schema_version=bad)},
        "run_id": {"run": BeginRun(run_id=bad, invocation_id="i")},
        "origin_id": {"run": BeginRun(run_id="r", invocation_id="i", origin_id=bad)},
        "correlation_id": {"run": BeginRun(run_id="r", invocation_id="i", correlation_id=bad)},
        "worker": {"run": BeginRun(run_id="r", invocation_id="i", worker=bad)},
        "run named": {"run": RunRef(run_id=bad)},
        "run taken": {"run": TakeRun(run_id=bad, attempt=1)},
        "held": {"save": True, "document": {"h": Held(hash=bad)}},
        "wait kind": {"run": begin, "open_waits": (OpenWait(kind=bad),)},
        "signal_id": {"run": begin, "open_waits": (OpenWait(kind="k", signal_id=bad),)},
        "wait_id": {"settle_waits": (SettleWait(wait_id=bad),)},
        "event type": {"events": (NewEvent(type=bad),)},
        "title": {"profile": {"title": bad}},
        "tag": {"profile": {"tags": (bad,)}},
    }
    calls = {name: partial(store.commit, a_commit(key, **parts)) for name, parts in names.items()}
    async with unchanged(store):
        assert await not_refused(InvalidInput, calls) == {}


@pytest.mark.parametrize("bad", [-1, TOO_MUCH, 2**63, True], ids=repr)
async def test_a_number_out_of_range_is_refused_before_any_write(store: Store, bad: Any) -> None:
    """Versions, generations, commit numbers, positions, steps, cursors and limits."""
    key, created = await a_session(store, None, "a")
    end = created.ends["messages"]
    begin = BeginRun(run_id="r", invocation_id="i")
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "life": lambda: store.commit(a_commit(key, life=bad)),
        "generation": lambda: store.commit(a_commit(key, generation=bad)),
        "expected_version": lambda: store.commit(a_commit(key, expected_version=bad)),
        "expected_commit": lambda: store.commit(a_commit(key, expected_commit=bad)),
        "steps": lambda: store.commit(a_commit(key, run=begin, steps=bad)),
        "checkpoint.step": lambda: store.commit(a_commit(key, run=begin, checkpoint=NewCheckpoint(step=bad))),
        "base position": lambda: store.commit(
            a_commit(key, save=True, logs={"messages": Append(base=end._replace(position=bad))})
        ),
        "kept branch": lambda: store.commit(
            a_commit(key, save=True, logs={"messages": Reset(keep=end._replace(branch=bad))})
        ),
        "save": lambda: store.save(key, SessionRecord(session_id=key.session_id, state={}), expected_version=bad),
        "fork": lambda: store.fork(key, a_key(), at=bad),
        "log start": lambda: store.logs.read(key, "messages", start=bad),
        "log stop": lambda: store.logs.read(key, "messages", stop=bad),
        "log tail": lambda: store.logs.tail(key, "messages", bad),
        "events": lambda: store.events.read(key, after=bad),
        "events limit": lambda: store.events.read(key, limit=bad),
        "checkpoint": lambda: store.checkpoints.get(key, bad),
        "checkpoints": lambda: store.checkpoints.of_session(key, before=bad),
        "runs": lambda: store.runs.of_session(key, before=bad),
        "orphans": lambda: store.lanes.orphans(limit=bad),
        "vacuum": lambda: store.upkeep.vacuum(pages=bad),
        "prune": lambda: store.upkeep.prune(events_keep=bad),
    }
    async with unchanged(store):
        for name, call in calls.items():
            with pytest.raises(TenutoError) as refused:
                await call()
            assert type(refused.value) is InvalidInput, name


@pytest.mark.parametrize("bad", [-1, TOO_MUCH, "1"], ids=repr)
async def test_a_runs_numbers_out_of_range_are_refused_before_any_write(store: Store, bad: Any) -> None:
    """The base version, ends and attempt a run is begun, taken or named with."""
    key, created = await a_session(store, None, "a")
    end = created.ends["messages"]._replace(position=bad)
    runs: dict[str, Any] = {
        "base_version": BeginRun(run_id="r", invocation_id="i", base_version=bad),
        "ends": BeginRun(run_id="r", invocation_id="i", ends={"messages": end}),
        "base_ends": BeginRun(run_id="r", invocation_id="i", base_ends={"messages": end}),
        "attempt": RunRef(run_id="r", attempt=bad),
        "taken attempt": TakeRun(run_id="r", attempt=bad),
    }
    calls = {name: partial(store.commit, a_commit(key, run=run)) for name, run in runs.items()}
    async with unchanged(store):
        assert await not_refused(InvalidInput, calls) == {}


async def test_an_impossible_ttl_or_age_is_refused(store: Store) -> None:
    """Refused are zero and less, infinity, what is not a number, and a day or more."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    begin: dict[str, Any] = {"run_id": "r", "invocation_id": "i"}
    bad: Any
    async with unchanged(store):
        for bad in (0, -1, 86_401, float("nan"), float("inf"), True, "15", None):
            with pytest.raises(InvalidInput):
                await store.lanes.acquire(a_key(), an_owner(), ttl=bad)
            with pytest.raises(InvalidInput):
                await store.lanes.renew([lane], ttl=bad)
            with pytest.raises(InvalidInput):
                await store.commit(a_commit(key, generation=1, expected_commit=1, rearm=Rearm(nonce="n", ttl=bad)))
            with pytest.raises(InvalidInput):
                await store.commit(a_commit(key, run=BeginRun(**begin, ttl=bad)))
            with pytest.raises(InvalidInput):
                await store.commit(a_commit(key, run=TakeRun(run_id="r", attempt=1, ttl=bad)))
        for bad in (-1, float("nan"), float("inf"), True, "1"):
            with pytest.raises(TenutoError):
                await store.upkeep.gc(grace=bad)


async def test_a_time_without_a_zone_is_refused(store: Store) -> None:
    """Neither a deadline nor an expiry may."""
    key, _ = await a_session(store)
    naive = datetime(2030, 1, 1)
    run = BeginRun(run_id="r", invocation_id="i")
    async with unchanged(store):
        with pytest.raises(InvalidInput):
            await store.commit(a_commit(key, run=run, open_waits=(OpenWait(kind="k", deadline=naive),)))
        with pytest.raises(InvalidInput):
            await store.commit(a_commit(key, profile={"expires_at": naive}))
        with pytest.raises(InvalidInput):
            await store.create(a_key(), profile=Profile(expires_at=naive))


async def test_a_record_of_another_id_is_refused(store: Store) -> None:
    """The record's id and the key's must agree."""
    key, _ = await a_session(store)
    async with unchanged(store):
        with pytest.raises(InvalidInput):
            await store.save(key, SessionRecord(session_id="other", state={}))


async def test_a_record_that_changes_a_fields_kind_is_refused(store: Store) -> None:
    """A log saved as text, a document field declared as log."""
    key, _ = await a_session(store, None, "a", state={"topic": ["t"]})
    async with unchanged(store):
        for state, logs in (
            ({"messages": "text", "topic": ["t"]}, frozenset[str]()),
            ({"messages": ["a"], "topic": ["t"]}, frozenset({"topic"})),
        ):
            with pytest.raises(InvalidInput):
                await store.save(key, SessionRecord(session_id=key.session_id, state=state, logs=logs))


LIMIT = 2**53 - 1
COUNTERS: dict[str, Callable[[Store, Any], Awaitable[Any]]] = {
    "version": lambda store, key: store.commit(a_save(key, "x")),
    "commit_no": lambda store, key: store.commit(a_commit(key, profile={"title": "T"})),
    "event_seq": lambda store, key: store.commit(a_commit(key, events=(NewEvent(type="e"),))),
    "generation": lambda store, key: store.lanes.acquire(key, an_owner()),
    "life": lambda store, key: store.delete(key),
    "branch_seq": lambda store, key: store.commit(a_commit(key, save=True, logs={"messages": Reset(items=(1,))})),
    "run_seq": lambda store, key: store.commit(a_commit(key, run=BeginRun(run_id="r", invocation_id="i"))),
    "resume_count": lambda store, key: store.commit(a_commit(key, count_resume=True)),
}


@needs(Capability.DAMAGE_SQL)
@pytest.mark.parametrize("counter", COUNTERS)
async def test_a_counter_at_its_limit_refuses_and_does_not_wrap(harness: Harness, counter: str) -> None:
    """Every number that only rises, at 2^53 - 1."""
    store = await harness.open()
    key, _ = await a_session(store, None, "a")
    store = await damaged(harness, store, f"UPDATE session SET {counter} = {LIMIT}")
    async with unchanged(store):
        with pytest.raises(InvalidInput):
            await COUNTERS[counter](store, key)


async def test_a_log_end_with_parts_out_of_range_is_refused_at_read(store: Store) -> None:
    """A place no log can have is a typed error, not an empty history."""
    key, created = await a_session(store, None, "a", "b")
    end = created.ends["messages"]
    for bad in (end._replace(position=-1), end._replace(position=TOO_MUCH), LogEnd(end.session, -1, 1)):
        with pytest.raises(TenutoError):
            await store.logs.read(key, "messages", end=bad)
