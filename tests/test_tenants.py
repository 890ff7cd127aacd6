"""Two tenants with the same session ids: what one knows of the other's ids gets it nothing, and tells it nothing."""

import inspect
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from tenuto.errors import TenutoError
from tenuto.graph import CompiledGraph
from tenuto.ids import new_id
from tenuto.model.commit import BeginRun, EndRun, Held, SettleWait, TakeRun
from tenuto.model.effect import Effect, EffectKind, SettleEffect, StartEffect
from tenuto.model.event import NewEvent
from tenuto.model.input import Boundary, Consume, InputKind, NewInput
from tenuto.model.lane import Lane
from tenuto.model.outgoing_item import NewOutgoing, Outgoing, OutgoingStatus
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import LogEnd, SessionKey
from tenuto.model.wait import Wait
from tenuto.runtime.change.action import SuspendSession
from tenuto.runtime.handle import Session
from tenuto.runtime.operator import Operator
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.run_handle import RunHandle
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.sessions import Sessions
from tenuto.store.store import Store
from tenuto.testing.factories import a_commit, an_owner
from tenuto.testing.fake_clock import FakeClock
from tests.conftest import OurHarness
from tests.graph.talking import gate, line, says
from tests.runtime.runtimes import opened

MINE, THEIRS = "mine", "theirs"
SECRET = "their secret"


@program
async def desk(turn: Turn) -> None:
    """Answer at once, or ask first."""
    if turn.text == "ask":
        await turn.wait(f"signal-{turn.tenant}", metadata={"note": f"{turn.tenant} secret"})
    turn.record_usage("model", input=3)
    turn.append({"role": "assistant", "content": f"{turn.tenant} secret"})


@dataclass(frozen=True, kw_only=True)
class Ids:
    """What somebody may know of a tenant."""

    session: SessionKey
    only: str
    run_id: str
    ended_run: str
    graph_run: str
    bare_run: str
    waiting_run: str
    waiting: str
    wait_id: str
    wait: Wait
    signal_id: str
    input_id: str
    outbox_id: str
    sent: Outgoing
    invocation_id: str
    paused: str
    operation_id: str
    hash: str
    end: LogEnd
    effect: Effect
    lane: Lane

    def words(self) -> list[str]:
        """Return everything that names something of it, longer names first."""
        names = [str(value) for name, value in vars(self).items() if name not in _PARTS]
        keys = [show(key) for key in (self.session, self.effect.key, self.wait.key) for show in (str, repr)]
        return sorted({*names, *keys, self.effect.origin_id, self.effect.effect_key}, key=len, reverse=True)


_PARTS = ("effect", "lane", "sent", "session", "wait")


def unknown(like: Ids) -> Ids:
    """Return the ids of nothing at all."""
    minted = {name: new_id() for name, value in vars(like).items() if isinstance(value, str)}
    nowhere = SessionKey("nowhere", tenant=THEIRS)
    return Ids(
        **minted | {"hash": "0" * 64},
        session=nowhere,
        end=LogEnd(999_999, 1, 1),
        effect=replace(like.effect, origin_id=new_id(), effect_key=new_id()),
        wait=replace(like.wait, key=nowhere, wait_id=minted["wait_id"], run_id=minted["waiting_run"]),
        sent=replace(like.sent, outbox_id=minted["outbox_id"]),
        lane=like.lane,
    )


def _begun() -> BeginRun:
    return BeginRun(run_id=new_id(), invocation_id=new_id())


def _settled(effect: Effect) -> SettleEffect:
    return SettleEffect(key=effect.effect_key, origin_id=effect.origin_id, result=1)


async def tenant_with_everything(runtime: SessionRuntime, graph: CompiledGraph[Any], tenant: str) -> Ids:
    """Give a tenant a session that was answered, one that waits, a live run, a call in doubt and a paused graph."""
    store, view = runtime.store, runtime.for_tenant(tenant)
    key = SessionKey("shared", tenant=tenant)
    await view.create("desk", {"big": f"{tenant} secret" * 200, "note": SECRET}, session_id="shared")
    ended = await view.send("shared", "hello", key="key")
    await view.create("desk", session_id=f"only-{tenant}")
    await view.send(f"only-{tenant}", "hello")
    await view.create("desk", session_id="below", parent=f"only-{tenant}")
    await view.create("desk", session_id="waits")
    wait = (await view.send("waits", "ask", key="key")).waits[0]
    await view.create("desk", session_id="busy")
    busy = replace(key, session_id="busy")
    lane = await store.lanes.acquire(busy, an_owner(), ttl=3600)
    begin = _begun()
    operation = new_id()
    sent = NewOutgoing(kind="wake", target=busy, body={"note": SECRET}, delay=1e6)
    receipt = await store.commit(
        a_commit(busy, operation_id=operation, generation=lane.generation, run=begin, outgoing=(sent,))
    )
    doubtful = replace(key, session_id="doubtful")
    await view.create("desk", session_id="doubtful")
    effect = StartEffect(key=f"pay-{tenant}", kind=EffectKind.TOOL, request={"note": SECRET})
    failed = _begun()
    await store.commit(a_commit(doubtful, run=failed, effects=(effect,)))
    end = EndRun(status=RunStatus.FAILED)
    await store.commit(a_commit(doubtful, run=RunRef(run_id=failed.run_id), end=end))
    bare = _begun()
    await store.commit(a_commit(doubtful, run=bare))
    paused = await graph.bind(store, tenant=tenant).run({"messages": [SECRET]}, session_id="graph")
    waiting, (graph_run,) = (
        await store.runs.get(wait.run_id, tenant=tenant),
        await store.runs.of_session(replace(key, session_id="graph")),
    )
    assert waiting is not None
    head = await store.head(key)
    assert head is not None
    assert ended.run_id is not None
    contents = [row["hash"] for row in (await store.dump())["content"] if row["tenant"] == tenant]
    outgoing = await store.outbox.get(receipt.outgoing_ids[0], tenant=tenant)
    assert outgoing is not None
    return Ids(
        session=key,
        only=f"only-{tenant}",
        run_id=begin.run_id,
        ended_run=ended.run_id,
        graph_run=graph_run.run_id,
        bare_run=bare.run_id,
        waiting_run=waiting.run_id,
        waiting=waiting.invocation_id,
        wait_id=wait.wait_id,
        wait=wait,
        signal_id=f"signal-{tenant}",
        input_id=await view.session("waits").enqueue(SECRET, delay=1e6),
        outbox_id=outgoing.outbox_id,
        sent=outgoing,
        invocation_id=begin.invocation_id,
        paused=paused.invocation_id,
        operation_id=operation,
        hash=contents[0],
        end=head.ends["messages"],
        effect=(await view.session("doubtful").effects_in_doubt())[0],
        lane=lane,
    )


@dataclass(frozen=True, kw_only=True)
class World:
    """Both tenants, seen by the one that asks."""

    runtime: SessionRuntime
    graph: CompiledGraph[Any]
    mine: Ids

    @property
    def store(self) -> Store:
        return self.runtime.store

    @property
    def view(self) -> Sessions:
        return self.runtime.for_tenant(MINE)

    def key(self, session_id: str = "shared") -> SessionKey:
        return SessionKey(session_id, tenant=MINE)

    async def commit(self, session_id: str, **parts: Any) -> Any:
        """Commit to a session of the asking tenant."""
        return await self.store.commit(a_commit(self.key(session_id), **parts))


Case = Callable[[World, Ids], Any]


async def _all(frames: Any) -> list[str]:
    return [str(frame) async for frame in frames]


def _mine(world: World, effect: Effect) -> Effect:
    """Return a call as if it were one of a session of the asking tenant."""
    return replace(effect, key=world.key("doubtful"))


async def _first_page(world: World, ids: Ids) -> Any:
    """Subscribe to a run's events: of a run that is not the session's there is none, so only a look is possible."""
    return (await world.store.events.read(world.key(), run_id=ids.ended_run)).events


async def _resumed(world: World, ids: Ids, **options: Any) -> Any:
    out = await world.graph.run(resume_invocation=ids.paused, signal_payload={}, **options)
    return out.status, str(out.error), out.state


CASES: dict[str, list[Case]] = {
    "Store.fork": [lambda w, i: w.store.fork(i.session, w.key("fork")), lambda w, i: w.store.fork(w.key(), i.session)],
    "Store.receipt": [lambda w, i: w.store.receipt(w.key("busy"), i.operation_id)],
    "Lanes.renew": [lambda w, i: w.store.lanes.renew([], runs=[RunRef(run_id=i.bare_run)], tenant=MINE)],
    "Logs.read": [lambda w, i: w.store.logs.read(w.key(), "messages", end=i.end)],
    "Logs.tail": [lambda w, i: w.store.logs.tail(w.key(), "messages", 1, end=i.end)],
    "Runs.get": [lambda w, i: w.store.runs.get(i.run_id, tenant=MINE)],
    "Runs.of_invocation": [lambda w, i: w.store.runs.of_invocation(i.invocation_id, tenant=MINE)],
    "Runs.request_stop": [
        lambda w, i: w.store.runs.request_stop(i.run_id, tenant=MINE),
        lambda w, i: w.store.runs.request_stop(i.run_id, session=w.key("busy")),
    ],
    "Runs.stops": [lambda w, i: w.store.runs.stops([i.run_id], tenant=MINE)],
    "Runs.withdraw_stop": [lambda w, i: w.store.runs.withdraw_stop(i.run_id, tenant=MINE)],
    "Checkpoints.latest": [lambda w, i: w.store.checkpoints.latest(w.key("graph"), run_id=i.graph_run)],
    "Checkpoints.of_session": [lambda w, i: w.store.checkpoints.of_session(w.key("graph"), run_id=i.graph_run)],
    "Waits.get": [lambda w, i: w.store.waits.get(i.wait_id, tenant=MINE)],
    "Waits.for_signal": [lambda w, i: w.store.waits.for_signal(i.signal_id, tenant=MINE)],
    "Waits.of_invocation": [lambda w, i: w.store.waits.of_invocation(w.key("waits"), i.waiting)],
    "Waits.of_session": [lambda w, i: w.store.waits.of_session(w.key("waits"), run_id=i.waiting_run)],
    "Events.append": [
        lambda w, i: w.store.events.append(w.mine.lane, [NewEvent(type="e")], run=RunRef(run_id=i.run_id))
    ],
    "Events.read": [lambda w, i: w.store.events.read(w.key(), run_id=i.ended_run)],
    "Events.subscribe": [_first_page],
    "Inbox.get": [lambda w, i: w.store.inbox.get(i.input_id, tenant=MINE)],
    "Inbox.refuse": [lambda w, i: w.store.inbox.refuse(w.key("waits"), i.input_id, "no")],
    "Inbox.cancel": [lambda w, i: w.store.inbox.cancel(w.key("waits"), [i.input_id])],
    "Inbox.enqueue": [
        lambda w, i: w.store.inbox.enqueue(
            w.key("busy"), NewInput(kind=InputKind.MESSAGE, body={}, boundary=Boundary.AFTER_STEP, run_id=i.run_id)
        )
    ],
    "Inbox.next": [lambda w, i: w.store.inbox.next(w.key("busy"), boundary=Boundary.AFTER_STEP, run_id=i.run_id)],
    "Effects.get": [lambda w, i: w.store.effects.get(w.key("doubtful"), i.effect.origin_id, i.effect.effect_key)],
    "Effects.list": [lambda w, i: w.store.effects.list(w.key("doubtful"), origin_id=i.effect.origin_id)],
    "Usage.report": [lambda w, i: w.store.usage.report(w.key(), run_id=i.ended_run)],
    "Outbox.get": [lambda w, i: w.store.outbox.get(i.outbox_id, tenant=MINE)],
    "Outbox.mark": [lambda w, i: w.store.outbox.mark(i.outbox_id, OutgoingStatus.DONE, tenant=MINE)],
    "Outbox.refuse": [lambda w, i: w.store.outbox.refuse(replace(i.sent, key=replace(i.sent.key, tenant=MINE)), "no")],
    "Sessions.answer": [
        lambda w, i: w.view.answer(i.wait_id, "L"),
        lambda w, i: w.view.answer(i.wait, "L"),
        lambda w, i: w.view.answer(replace(i.wait, kind="approval", run_id="x"), "L"),
        lambda w, i: w.runtime.answer(i.wait_id, "L"),
    ],
    "Sessions.create": [
        lambda w, i: w.view.create("desk", session_id="child", parent=i.only),
        lambda w, i: w.runtime.create("desk", session_id="child", parent=i.only),
    ],
    "Sessions.list": [lambda w, i: w.view.list(parent=i.only), lambda w, i: w.runtime.list(parent=i.only)],
    "Sessions.outcome": [
        lambda w, i: w.view.outcome(i.input_id),
        lambda w, i: w.view.outcome(i.ended_run),
        lambda w, i: w.runtime.outcome(i.input_id),
    ],
    "Session.answer": [
        lambda w, i: w.view.session("waits").answer(i.wait_id, "L"),
        lambda w, i: w.view.session("waits").answer(i.wait, "L"),
        lambda w, i: w.view.session("shared").answer(i.wait_id, "L"),
    ],
    "Session.cancel": [lambda w, i: w.view.session("waits").cancel(i.input_id)],
    "Session.events": [lambda w, i: _all(w.view.session("shared").events(run=i.ended_run, live=False))],
    "Session.fork": [lambda w, i: w.view.session("shared").fork(at=i.ended_run)],
    "Session.regenerate": [
        lambda w, i: w.view.session("shared").regenerate(i.ended_run),
        lambda w, i: w.view.session("shared").regenerate(i.ended_run, fork=True),
    ],
    "Session.rewind": [lambda w, i: w.view.session("shared").rewind(i.ended_run)],
    "Session.settle_effect": [
        lambda w, i: w.view.session("doubtful").settle_effect(i.effect, result="paid"),
        lambda w, i: w.view.session("doubtful").settle_effect(_mine(w, i.effect), result="paid"),
    ],
    "Session.stop": [
        lambda w, i: w.view.session("busy").stop(run_id=i.run_id),
        lambda w, i: w.view.session("busy").stop(run_id=i.run_id, tree=True),
        lambda w, i: w.runtime.session("nowhere").stop(run_id=i.run_id, kind="abort"),
    ],
    "Session.withdraw_stop": [lambda w, i: w.view.session("busy").withdraw_stop(i.run_id)],
    "CompiledGraph.cancel": [lambda w, i: w.graph.cancel(i.paused)],
    "CompiledGraph.resume": [lambda w, i: w.graph.resume(i.wait_id)],
    "CompiledGraph.run": [_resumed, lambda w, i: _resumed(w, i, session_id="graph")],
    "Store.commit": [
        lambda w, i: w.commit("waits", settle_waits=(SettleWait(wait_id=i.wait_id, answer=1),)),
        lambda w, i: w.commit("waits", run=_begun(), consume=(Consume(input_id=i.input_id),)),
        lambda w, i: w.commit("doubtful", run=RunRef(run_id=i.bare_run), steps=3),
        lambda w, i: w.commit("doubtful", run=TakeRun(run_id=i.bare_run, attempt=1)),
        lambda w, i: w.commit("shared", save=True, document={"x": Held(hash=i.hash)}),
        lambda w, i: w.commit("doubtful", effects=(_settled(i.effect),)),
        lambda w, i: w.commit("shared", outgoing=(NewOutgoing(kind="wake", target=i.session, body={}),)),
        lambda w, i: w.commit("shared", run=BeginRun(run_id="r", invocation_id="i", ends={"messages": i.end})),
    ],
}
"""The verbs that take an id of something within a session, each called by one tenant with what it was told."""

OTHERWISE = {
    "Store.copy_across": "goes across tenants, for operators",
    "Store.create": "the operation id is of the session it creates",
    "Store.save": "a record has only its session's id",
    "Lanes.disarm": "a lane has its session's key and a nonce",
    "Schedules.declare": "a schedule has a name and words, but no ids",
    "CompiledGraph.drain_events_for": "waits for observers of this process",
    "CompiledGraph.save_again": "is given what `run` raised",
}
"""Verbs that take something like an id and need no case, and why."""

EXTRA: dict[str, tuple[Any, ...]] = {
    "answer": ("wait", "yes"),
    "cancel": ("input",),
    "enqueue": ("hi",),
    "execute": (SuspendSession(),),
    "pause_schedule": ("nightly",),
    "resume_schedule": ("nightly",),
    "schedule": ("nightly", "report"),
    "unschedule": ("nightly",),
    "rewind": (1,),
    "send": ("hi",),
    "start": ("hi",),
    "withdraw_stop": ("run",),
}
"""What verbs of a session need."""

_NAMES = {"commit", "effect", "end", "error", "ids", "input", "lane", "lanes", "new", "record", "run", "runs", "wait"}
_NAMES |= {"at", "call", "source", "target", "to", "parent"}


def takes_ids(verb: Callable[..., Any]) -> bool:
    names = set(inspect.signature(verb).parameters) - {"self", "session_id", "correlation_id", "user_id"}
    return any(name in _NAMES or name.endswith(("_id", "_ids")) for name in names)


def verbs_of(kind: type) -> dict[str, Callable[..., Any]]:
    """Return the verbs of a class itself: those of its base are asked about under the base's name."""
    members = [(name, verb) for name, verb in inspect.getmembers(kind, inspect.isfunction) if name in vars(kind)]
    asked = {name: verb for name, verb in members if not name.startswith("_")}
    return {
        f"{kind.__name__}.{name}": verb
        for name, verb in asked.items()
        if inspect.iscoroutinefunction(verb) or inspect.isasyncgenfunction(verb) or name == "events"
    }


async def test_every_verb_that_takes_an_id_has_a_case(store: Store) -> None:
    facets = {type(each) for each in vars(store).values() if type(each).__module__.startswith("tenuto.store.")}
    facets -= {type(store.backend), type(store.keeper)}
    found: dict[str, Callable[..., Any]] = {}
    kinds: tuple[type, ...] = (Store, *facets, Sessions, SessionRuntime, Operator, Session, RunHandle, CompiledGraph)
    for kind in kinds:
        found |= verbs_of(kind)
    asked = {name for name, verb in found.items() if takes_ids(verb)}
    assert asked - CASES.keys() == OTHERWISE.keys()
    assert CASES.keys() <= found.keys()
    assert len(facets) >= 11


async def outcome_of(call: Callable[[], Awaitable[Any]], ids: Ids) -> tuple[str, ...]:
    """Return how a call went, in words without the ids it was given."""
    try:
        told: tuple[str, ...] = ("returned", repr(await call()))
    except TenutoError as error:
        told = (type(error).__name__, str(error), repr(error.details()))
    return tuple(_without(text, ids.words()) for text in told)


async def kept(store: Store) -> Any:
    """Return every row, but for the lanes of the asking tenant: some verbs take one before they look."""
    rows = await store.dump()
    for row in rows["session"]:
        if row["tenant"] == MINE:
            row.update(dict.fromkeys(("generation", "armed", "nonce", "holder", "lane_expires_at")))
    return rows


def _without(text: str, words: list[str]) -> str:
    for word in words:
        text = text.replace(word, "?")
    return text


async def world_of(harness: OurHarness) -> tuple[World, Ids]:
    store = await harness.open(clock=FakeClock())
    runtime = await opened(store, [desk])
    graph = line(gate("approval"), says("done"), store=store)
    mine, theirs = [await tenant_with_everything(runtime, graph, tenant) for tenant in (MINE, THEIRS)]
    return World(runtime=runtime, graph=graph.bind(store, tenant=MINE), mine=mine), theirs


async def test_what_another_tenant_has_is_unknown_in_the_words_of_what_is_not_there(harness: OurHarness) -> None:
    world, theirs = await world_of(harness)
    nobody = unknown(theirs)
    before = await kept(world.store)
    cases = [(name, nth, case) for name, each in CASES.items() for nth, case in enumerate(each)]
    random.shuffle(cases)
    for name, nth, case in cases:
        told = await outcome_of(lambda case=case: case(world, theirs), theirs)  # type: ignore[misc]
        expected = await outcome_of(lambda case=case: case(world, nobody), nobody)  # type: ignore[misc]
        assert told == expected, (name, nth)
        assert "secret" not in str(told), (name, nth)
        unchanged = await kept(world.store) == before
        assert unchanged, (name, nth)


async def test_a_session_that_only_another_tenant_has_is_one_that_is_not_there(harness: OurHarness) -> None:
    world, theirs = await world_of(harness)
    nobody = unknown(theirs)
    before = await kept(world.store)
    verbs = {name.partition(".")[2] for name in verbs_of(Session)} - {"settle_effect"}
    assert len(verbs) > 15
    for name in verbs:

        async def call(ids: Ids, name: str = name) -> Any:
            handle = world.view.session(ids.only)
            if name == "events":
                return await _all(handle.events(live=False))
            return await getattr(handle, name)(*EXTRA.get(name, ()), **({"every": 60} if name == "schedule" else {}))

        told = [await outcome_of(lambda ids=ids: call(ids), ids) for ids in (theirs, nobody)]  # type: ignore[misc]
        assert told[0] == told[1], name
        assert "secret" not in str(told), name
    assert await kept(world.store) == before


async def test_a_view_takes_no_key_whatever_is_there(harness: OurHarness) -> None:
    world, theirs = await world_of(harness)
    nobody = unknown(theirs)
    before = await kept(world.store)
    calls: list[Callable[[Any], Any]] = [
        world.view.get,
        lambda key: world.view.send(key, "hi"),
        lambda key: world.view.execute(key, SuspendSession()),
        lambda key: world.view.create("desk", session_id=key),
        lambda key: world.view.create("desk", parent=key),
        lambda key: world.view.session(key).get(),
        lambda key: world.view.session("shared").fork(session_id=key),
    ]
    for nth, call in enumerate(calls):
        told = [
            await outcome_of(lambda ids=ids: call(ids.session), ids)  # type: ignore[misc] # noqa: B023
            for ids in (theirs, nobody)
        ]
        assert told[0] == told[1], nth
        assert told[0][0] in ("InvalidId", "InvalidInput"), nth
    assert await kept(world.store) == before


async def test_the_same_calls_with_a_tenants_own_ids_do_something(harness: OurHarness) -> None:
    """Otherwise the cases above would prove nothing. Those that ask for nothing but a refusal are left out."""
    world, theirs = await world_of(harness)
    nobody = unknown(theirs)
    silent = set()
    for name, each in CASES.items():
        for nth, case in enumerate(each):
            told = await outcome_of(lambda case=case: case(world, world.mine), world.mine)  # type: ignore[misc]
            expected = await outcome_of(lambda case=case: case(world, nobody), nobody)  # type: ignore[misc]
            if told == expected:
                silent.add((name, nth))
    at_home = {("Sessions.answer", 3), ("Sessions.create", 1), ("Sessions.list", 1), ("Sessions.outcome", 2)}
    at_home |= {("Session.stop", 2)}
    assert silent == at_home  # the runtime itself asks in the default tenant, which neither of them is
