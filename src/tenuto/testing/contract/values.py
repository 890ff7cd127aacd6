"""What goes in comes out: a value no reader would take back is refused at the door, the same on every backend."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest

from tenuto.codec import MAX_DIGITS
from tenuto.errors import InvalidInput, TenutoError
from tenuto.model.commit import Append, BeginRun, EndRun, NewCheckpoint, OpenWait, Reset, SettleWait
from tenuto.model.effect import EffectKind, FinishEffect, SettleEffect, StartEffect
from tenuto.model.event import NewEvent
from tenuto.model.input import Consume, InputKind, NewInput
from tenuto.model.lane import HostProof, Owner
from tenuto.model.outgoing_item import NewOutgoing, OutgoingStatus
from tenuto.model.run import RunRef, RunStatus, StopKind
from tenuto.model.session import Profile, SessionFilter, SessionKey, SessionRecord
from tenuto.model.token_usage import NewUsage
from tenuto.model.wait import WaitStatus
from tenuto.store.rules.limits import MAX_LIMIT, MAX_NAME_BYTES, MAX_TAGS, MAX_TEXT_BYTES
from tenuto.store.store import Store
from tenuto.testing.checks import not_refused, unchanged
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, an_owner

BEGIN = BeginRun(run_id="r", invocation_id="i")
BEFORE_THE_YEAR_ONE = datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))
AFTER_THE_YEAR_9999 = datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))


def _commits(store: Store, key: SessionKey, parts: dict[str, dict[str, Any]]) -> dict[str, Callable[[], Any]]:
    return {name: partial(store.commit, replace(a_commit(key), **part)) for name, part in parts.items()}


async def test_an_integer_no_reader_takes_back_is_refused_wherever_it_stands(store: Store) -> None:
    """In every JSON value a verb takes, before anything is written; one of the longest that can be read is kept."""
    key, _ = await a_session(store, None, "a")
    bad = {"n": [10**MAX_DIGITS]}
    calls = _commits(
        store,
        key,
        {
            "document": {"save": True, "document": {"d": bad}},
            "append": {"save": True, "logs": {"messages": Append(items=(bad,))}},
            "reset": {"save": True, "logs": {"messages": Reset(items=(-bad["n"][0],))}},
            "cursor": {"checkpoint": NewCheckpoint(step=1, cursor=bad)},
            "point": {"checkpoint": NewCheckpoint(step=1, document={"d": bad})},
            "schema": {"run": BEGIN, "open_waits": (OpenWait(kind="k", schema=bad),)},
            "wait metadata": {"run": BEGIN, "open_waits": (OpenWait(kind="k", metadata=bad),)},
            "answer": {"settle_waits": (SettleWait(wait_id="w", answer=bad),)},
            "event": {"events": (NewEvent(type="e", data=bad),)},
            "error": {"run": BEGIN, "end": EndRun(status=RunStatus.FAILED, error=bad)},
            "outcome": {"run": BEGIN, "end": EndRun(status=RunStatus.FAILED, outcome=bad)},
            "input": {"inputs": (NewInput(kind=InputKind.MESSAGE, body=bad),)},
            "request": {"run": BEGIN, "effects": (StartEffect(key="k", kind=EffectKind.TOOL, request=bad),)},
            "result": {"run": BEGIN, "effects": (FinishEffect(key="k", result=bad),)},
            "outgoing": {"outgoing": (NewOutgoing(kind="k", target=key, body=bad),)},
            "metadata": {"profile": {"metadata": bad}},
            "definition": {"profile": {"definition": bad}},
        },
    )
    calls["create"] = lambda: store.create(a_key(), state=bad)
    calls["save"] = lambda: store.save(key, SessionRecord(session_id=key.session_id, state=bad))
    calls["enqueue"] = lambda: store.inbox.enqueue(key, NewInput(kind=InputKind.MESSAGE, body=bad))
    async with unchanged(store):
        assert await not_refused(InvalidInput, calls) == {}
    longest = [10**MAX_DIGITS - 1, -(10**MAX_DIGITS - 1), 2**64, -(2**63), 0.1, 5e-324, 1.7976931348623157e308, -0.0]
    await store.commit(a_save(key, document={"longest": longest}))
    record = await store.load(key)
    assert record is not None
    assert record.state["longest"] == longest
    assert math.copysign(1, record.state["longest"][-1]) == -1


async def test_a_word_outside_its_set_is_refused(store: Store) -> None:
    """Statuses, kinds and boundaries: an unknown word, another spelling, another type, and words only the store
    gives.
    """
    key, _ = await a_session(store, None, "a")
    bad: Any
    async with unchanged(store):
        for bad in ("ACTIVE", "Completed", "zombie", "", 5, None, [], b"active", {"a": 1}):
            kept = [] if bad is None else ["status", "statuses", "boundary"]
            calls = _commits(
                store,
                key,
                {
                    "end": {"run": BEGIN, "end": EndRun(status=bad)},
                    "settled": {"settle_waits": (SettleWait(wait_id="w", status=bad),)},
                    "input": {"inputs": (NewInput(kind=bad, body=1),)},
                    "effect": {"run": BEGIN, "effects": (StartEffect(key="k", kind=bad, request=1),)},
                },
            )
            if kept:
                calls |= _commits(store, key, {"status": {"status": bad}})
                if isinstance(bad, str | int):
                    calls |= _commits(store, key, {"statuses": {"statuses": frozenset({bad})}})
                steer = NewInput(kind=InputKind.MESSAGE, body=1, boundary=bad)
                calls["boundary"] = partial(store.inbox.enqueue, key, steer)
                calls["next"] = partial(store.inbox.next, key, boundary=bad)
                calls["waits"] = partial(store.waits.of_session, key, status=bad)
            calls["create"] = partial(store.create, a_key(), status=bad)
            calls["enqueue"] = partial(store.inbox.enqueue, key, NewInput(kind=bad, body=1))
            calls["stop"] = partial(store.runs.request_stop, "r", bad)
            calls["mark"] = partial(store.outbox.mark, "o", bad)
            calls["expected"] = partial(store.outbox.mark, "o", OutgoingStatus.DONE, expected=bad)
            assert await not_refused(InvalidInput, calls) == {}, bad
        ours = _commits(
            store,
            key,
            {
                "deleted": {"status": "deleted"},
                "running": {"run": BEGIN, "end": EndRun(status=RunStatus.RUNNING)},
                "open": {"settle_waits": (SettleWait(wait_id="w", status=WaitStatus.OPEN),)},
            },
        )
        assert await not_refused(InvalidInput, ours) == {}
        with pytest.raises(InvalidInput):
            SessionKey("a", kind="Session")  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [BEFORE_THE_YEAR_ONE, AFTER_THE_YEAR_9999], ids=["before", "after"])
async def test_a_time_that_leaves_the_calendar_in_utc_is_refused(store: Store, bad: datetime) -> None:
    """It would be stored, and never be read again; the first and the last time there is are kept."""
    key, _ = await a_session(store)
    calls = _commits(
        store,
        key,
        {
            "deadline": {"run": BEGIN, "open_waits": (OpenWait(kind="k", deadline=bad),)},
            "outgoing": {"outgoing": (NewOutgoing(kind="k", target=key, due_at=bad),)},
            "expires_at": {"profile": {"expires_at": bad}},
        },
    )
    calls["create"] = lambda: store.create(a_key(), profile=Profile(expires_at=bad))
    calls["fork"] = lambda: store.fork(key, a_key(), profile=Profile(expires_at=bad))
    calls["enqueue"] = lambda: store.inbox.enqueue(key, NewInput(kind=InputKind.MESSAGE, body=1, due_at=bad))
    calls["updated_after"] = lambda: store.list(SessionFilter(updated_after=bad))
    calls["created_after"] = lambda: store.list({"created_after": bad})
    async with unchanged(store):
        assert await not_refused(InvalidInput, calls) == {}
    for edge in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
        kept = (await store.inbox.enqueue(key, NewInput(kind=InputKind.MESSAGE, body=1, due_at=edge))).input
        assert kept.due_at == edge


async def test_a_value_of_another_class_is_refused_by_the_arguments_name(store: Store) -> None:
    """Where a dataclass, a mapping or a sequence belongs; also inside another one."""
    key, _ = await a_session(store, None, "a")
    lane = await store.lanes.acquire(key, an_owner())
    bad: Any
    for bad in (None, 5, "text", b"x", object(), [], {}, ("a",), lambda: 1):
        other: Any = bad or 5
        text: Any = bad or "text"
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "commit": partial(store.commit, bad),
            "record": partial(store.save, key, bad),
            "owner": partial(store.lanes.acquire, a_key(), bad),
            "host": partial(store.lanes.acquire, a_key(), Owner(owner_id="o", incarnation="i", host=other)),
            "lane": partial(store.events.append, bad, [NewEvent(type="e")]),
            "disarm": partial(store.lanes.disarm, bad),
            "renew": partial(store.lanes.renew, [bad]),
            "renewed run": partial(store.lanes.renew, [], runs=[bad]),
            "event": partial(store.events.append, lane, [bad]),
            "run": partial(store.events.append, lane, [NewEvent(type="e")], run=other),
            "input": partial(store.inbox.enqueue, key, bad),
            "profile": partial(store.create, a_key(), profile=other),
            "filter": partial(store.list, other),
            "created event": partial(store.create, a_key(), events=[bad]),
            "forked from": partial(store.create, a_key(), profile=Profile(forked_from=other)),
        }
        parts = {
            "commit key": {"key": bad},
            "commit run": {"run": other},
            "next run": {"next_run": other},
            "end": {"run": BEGIN, "end": other},
            "checkpoint": {"checkpoint": other},
            "rearm": {"rearm": other},
            "document": {"save": True, "document": other},
            "logs": {"save": True, "logs": other},
            "log write": {"save": True, "logs": {"messages": bad}},
            "items": {"save": True, "logs": {"messages": Append(items=text)}},
            "base": {"save": True, "logs": {"messages": Append(base=other)}},
            "ends": {"run": BeginRun(run_id="r", invocation_id="i", ends={"messages": bad})},
            "profile changes": {"profile": other},
            "removed": {"save": True, "removed": other},
            "save": {"save": bad},
            "target": {"outgoing": (NewOutgoing(kind="k", target=bad),)},
            "fresh": {"run": BeginRun(run_id="r", invocation_id="i", fresh=bad)},
            "idempotent": {
                "run": BEGIN,
                "effects": (StartEffect(key="k", kind=EffectKind.TOOL, request=1, idempotent=bad),),
            },
        }
        for name in ("open_waits", "settle_waits", "events", "inputs", "consume", "effects", "usage", "outgoing"):
            parts[name] = {name: (bad,)}
        calls |= _commits(store, key, parts)
        if isinstance(bad, tuple):
            calls.pop("items")  # it is what the items of a log should be
        async with unchanged(store):
            assert await not_refused(InvalidInput, calls) == {}, bad


async def test_a_text_where_a_collection_belongs_is_refused(store: Store) -> None:
    """It would be taken letter by letter."""
    key, _ = await a_session(store, None, "a")
    text: Any = "messages"
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "logs": lambda: store.create(a_key(), state={"messages": ["a"]}, logs=text),
        "events": lambda: store.create(a_key(), events=text),
        "tags": lambda: store.create(a_key(), profile=Profile(tags=text)),
        "record logs": lambda: store.save(
            key, SessionRecord(session_id=key.session_id, state={"messages": ["a"]}, logs=text)
        ),
        "state": lambda: store.create(a_key(), state=text),
        "cancel": lambda: store.inbox.cancel(key, text),
        "stops": lambda: store.runs.stops(text),
        "renew": lambda: store.lanes.renew(text),
        "removed": lambda: store.commit(a_save(key, removed=text)),
        "statuses": lambda: store.commit(a_commit(key, statuses=text)),
        "changed tags": lambda: store.commit(a_commit(key, profile={"tags": text})),
    }
    async with unchanged(store):
        assert await not_refused(InvalidInput, calls) == {}


async def test_an_empty_operation_id_or_nonce_is_refused_not_replaced(store: Store) -> None:
    """A caller that has lost its id needs an error: what it writes could not be repeated."""
    key, _ = await a_session(store)
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "create": lambda: store.create(a_key(), operation_id=""),
        "fork": lambda: store.fork(key, a_key(), operation_id=""),
        "commit": lambda: store.commit(a_commit(key, operation_id="")),
        "receipt": lambda: store.receipt(key, ""),
        "nonce": lambda: store.lanes.acquire(key, an_owner(), nonce=""),
    }
    async with unchanged(store):
        assert await not_refused(InvalidInput, calls) == {}


@pytest.mark.parametrize("bad", ["a\0b", "\udfff", 7, 2**70, b"x", "w" * 5000, None], ids=repr)
async def test_no_read_takes_a_name_that_nothing_can_have(store: Store, bad: Any) -> None:
    """The same refusal, which is not retryable, on every backend; a database's own would be called an outage."""
    key, _ = await a_session(store)
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "receipt": lambda: store.receipt(key, bad),
        "run": lambda: store.runs.get(bad),
        "invocation": lambda: store.runs.of_invocation(bad),
        "tenant": lambda: store.runs.of_invocation("i", tenant=bad),
        "stops": lambda: store.runs.stops([bad]),
        "stop": lambda: store.runs.request_stop(bad),
        "withdraw": lambda: store.runs.withdraw_stop(bad),
        "wait": lambda: store.waits.get(bad),
        "waits after": lambda: store.waits.open(after="" if bad is None else bad),
        "signal": lambda: store.waits.for_signal(bad),
        "origin": lambda: store.waits.of_invocation(key, bad),
        "input": lambda: store.inbox.get(bad),
        "input key": lambda: store.inbox.find(key, bad),
        "cancel": lambda: store.inbox.cancel(key, [bad]),
        "outgoing": lambda: store.outbox.get(bad),
        "mark": lambda: store.outbox.mark(bad, OutgoingStatus.DONE),
        "effect": lambda: store.effects.get(key, "o", bad),
        "effect origin": lambda: store.effects.get(key, bad, "k"),
        "effect namespace": lambda: store.effects.get(key, "o", "k", namespace=bad),
        "log": lambda: store.logs.read(key, bad),
        "head": lambda: store.head(bad),
        "delete": lambda: store.delete(bad),
    }
    if bad is not None:
        calls |= {
            "checkpoints": lambda: store.checkpoints.latest(key, run_id=bad),
            "waits of run": lambda: store.waits.of_session(key, run_id=bad),
            "open waits": lambda: store.waits.open(tenant=bad),
            "events": lambda: store.events.read(key, run_id=bad),
            "effects": lambda: store.effects.list(key, origin_id=bad),
            "usage": lambda: store.usage.report(key, run_id=bad),
            "next": lambda: store.inbox.next(key, run_id=bad),
            "list after": lambda: store.list(after=bad),
            "due after": lambda: store.inbox.due(after=bad),
            **{
                name: partial(store.list, {name: bad})
                for name in ("tenant", "agent", "user_id", "tag", "parent", "schema_version", "kind", "status")
            },
        }
    async with unchanged(store):
        for name, call in calls.items():
            with pytest.raises(InvalidInput) as refused:
                await call()
            assert not refused.value.retryable, name
            assert len(refused.value.message) < 500, name


async def test_whatever_goes_into_an_index_is_bounded(store: Store) -> None:
    """As long as is allowed it is kept, also where the text cannot be compressed; a byte more is refused."""
    key, _ = await a_session(store)
    text = "".join(chr(0x4E00 + (n * n * 7919) % 20000) for n in range(MAX_NAME_BYTES))
    longest = text[: MAX_NAME_BYTES // 3]
    id_ = text[:85]

    async def everything(name: str, number: int) -> None:
        run = BeginRun(run_id=f"{number}{name}"[: len(name)], invocation_id=id_[:-1] + str(number), origin_id=id_)
        effect = StartEffect(key=name, namespace=name, kind=EffectKind.TOOL, request=1)
        wait = OpenWait(kind=name, signal_id=name)
        profile = {"user_id": name, "agent": name}
        await store.commit(
            a_commit(key, run=run, effects=(effect,), open_waits=(wait,), profile=profile, operation_id=name[:-1])
        )
        await store.inbox.enqueue(key, NewInput(kind=InputKind.MESSAGE, body=1, key=name, input_id=name))

    await everything(longest, 1)
    assert [wait.signal_id for wait in await store.waits.for_signal(longest)] == [longest]
    over = longest + "xx"
    parts: dict[str, dict[str, Any]] = {
        "run_id": {"run": BeginRun(run_id=over, invocation_id="i")},
        "origin_id": {"run": BeginRun(run_id="r", invocation_id="i", origin_id=id_ + "x")},
        "effect key": {"run": BEGIN, "effects": (FinishEffect(key=over),)},
        "namespace": {"run": BEGIN, "effects": (FinishEffect(key="k", namespace=over),)},
        "settled origin": {"effects": (SettleEffect(key="k", origin_id=over),)},
        "signal_id": {"run": BEGIN, "open_waits": (OpenWait(kind="k", signal_id=over),)},
        "wait kind": {"run": BEGIN, "open_waits": (OpenWait(kind=over),)},
        "user_id": {"profile": {"user_id": over}},
        "agent": {"profile": {"agent": over}},
        "operation_id": {"operation_id": over},
        "heard": {"heard": over},
        "consume": {"consume": (Consume(input_id=over),)},
        "rolls_back": {"rolls_back": over},
        "model": {"usage": (NewUsage(model=over),)},
        "source": {"usage": (NewUsage(model="m", source=over),)},
        "run": {"run": RunRef(run_id=over)},
        "field": {"save": True, "document": {over: 1}},
        "log": {"save": True, "logs": {over: Append(items=(1,))}},
        "outgoing kind": {"outgoing": (NewOutgoing(kind=over, target=key),)},
        "event type": {"events": (NewEvent(type=over),)},
    }
    calls = _commits(store, key, parts)
    calls["parent"] = lambda: store.create(a_key(), profile=Profile(parent=over))
    calls["root"] = lambda: store.create(a_key(), profile=Profile(root=over))
    calls["nonce"] = lambda: store.lanes.acquire(key, an_owner(), nonce=over)
    calls["owner"] = lambda: store.lanes.acquire(key, an_owner(owner_id=over))
    calls["host"] = lambda: store.lanes.acquire(key, an_owner(host=HostProof(boot_id=over)))
    calls["input key"] = lambda: store.inbox.enqueue(key, NewInput(kind=InputKind.MESSAGE, body=1, key=over))
    async with unchanged(store):
        assert await not_refused(InvalidInput, calls) == {}


async def test_texts_for_people_are_bounded(store: Store) -> None:
    """Titles, tags, reasons and metadata, which lists, errors and every turn carry along."""
    key, _ = await a_session(store)
    await store.commit(a_commit(key, run=BEGIN))
    long = "t" * (MAX_TEXT_BYTES + 1)
    wide = "é" * (MAX_TEXT_BYTES // 2 + 1)
    calls = _commits(
        store,
        key,
        {
            "title": {"profile": {"title": long}},
            "wide title": {"profile": {"title": wide}},
            "preview": {"profile": {"preview": long}},
            "workspace": {"profile": {"workspace": long}},
            "failure_reason": {"profile": {"failure_reason": long}},
            "tag": {"profile": {"tags": ("t" * 256,)}},
            "tags": {"profile": {"tags": ("t",) * (MAX_TAGS + 1)}},
            "metadata": {"profile": {"metadata": {"m": "x" * 65_536}}},
        },
    )
    calls["stop reason"] = lambda: store.runs.request_stop("r", StopKind.INTERRUPT, long)
    calls["created title"] = lambda: store.create(a_key(), profile=Profile(title=long))
    async with unchanged(store):
        assert await not_refused(InvalidInput, calls) == {}
    await store.commit(a_commit(key, profile={"title": long[:-1], "tags": ("t" * 255,) * MAX_TAGS}))
    assert (await store.runs.request_stop("r", StopKind.INTERRUPT, long[:-1])).stop is not None


async def test_a_page_is_bounded(store: Store) -> None:
    """A limit above `MAX_LIMIT` is refused: larger results are read page by page."""
    key, _ = await a_session(store)
    most = MAX_LIMIT + 1
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "list": lambda: store.list(limit=most),
        "inputs": lambda: store.inbox.list(key, limit=most),
        "next": lambda: store.inbox.next(key, limit=most),
        "due": lambda: store.inbox.due(limit=most),
        "stranded": lambda: store.inbox.stranded(limit=most),
        "pending": lambda: store.outbox.pending(limit=most),
        "sent": lambda: store.outbox.of_session(key, limit=most),
        "effects": lambda: store.effects.list(key, limit=most),
        "runs": lambda: store.runs.of_session(key, limit=most),
        "running": lambda: store.runs.running(limit=most),
        "orphans": lambda: store.lanes.orphans(most),
        "checkpoints": lambda: store.checkpoints.of_session(key, limit=most),
        "waits": lambda: store.waits.open(limit=most),
        "cancel": lambda: store.inbox.cancel(key, ["i"] * most),
        "stops": lambda: store.runs.stops(["r"] * most),
    }
    assert await not_refused(InvalidInput, calls) == {}
    assert len(await store.list(limit=MAX_LIMIT)) == 1
    assert (await store.events.read(key, limit=2**53 - 1)).next == 0  # a page of these says itself where to read on


async def test_an_error_shows_no_more_than_a_little_of_what_was_given(store: Store) -> None:
    """Not the whole of a long id, nor what cannot be shown at all."""

    class Unshowable:
        def __repr__(self) -> str:
            raise RuntimeError

    key, _ = await a_session(store)
    bad: Any
    for bad in ("x" * 10_000_000, 10**5000, Unshowable(), ["y" * 1000] * 50, {"z" * 1000: 1}, float("nan")):
        for call in (
            partial(store.runs.get, bad),
            partial(store.head, bad),
            partial(store.list, {"tag": bad}),
            partial(store.list, after=bad),
            partial(store.lanes.acquire, key, an_owner(), ttl=bad),
            partial(store.create, a_key(), status=bad),
            partial(store.commit, a_commit(key, run=BeginRun(run_id=bad, invocation_id="i"))),
        ):
            with pytest.raises(TenutoError) as refused:
                await call()
            assert len(str(refused.value)) < 500


async def test_bad_arguments_of_upkeep_are_not_called_a_failure_of_it(store: Store) -> None:
    """A refusal of what was given is not to be repeated; nothing was begun."""
    bad: Any
    for bad in (-1, math.nan, math.inf, True, "1", 10**400):
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            name: partial(store.upkeep.prune, **{name: bad})
            for name in (
                *("receipts_older_than", "events_older_than", "events_keep", "chunks_older_than"),
                *("runs_older_than", "inputs_older_than", "outgoing_older_than"),
            )
        }
        calls["gc"] = partial(store.upkeep.gc, grace=bad)
        calls["vacuum"] = partial(store.upkeep.vacuum, pages=bad)
        assert await not_refused(InvalidInput, calls) == {}, bad
