"""How each verb is called, and repeated: under its key or id, or as the guides say."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from tenuto.errors import (
    DeliveryLost,
    EffectNotOpen,
    InvalidInput,
    LaneLost,
    SessionNotFound,
    SessionSaveFailed,
    StoreUnavailable,
    TenutoError,
    Unsupported,
    VersionConflict,
)
from tenuto.model.commit import Append, BeginRun, Commit, EndRun
from tenuto.model.effect import EffectKind, StartEffect
from tenuto.model.event import NewEvent
from tenuto.model.input import Input, InputKind, InputStatus, NewInput
from tenuto.model.outgoing_item import NewOutgoing, OutgoingStatus
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.schedule import NewSchedule
from tenuto.model.session import Profile, SessionKey, SessionRecord
from tenuto.runtime.change.action import ClearSession, ForkSession, WriteMetadata
from tenuto.runtime.handle import Session
from tenuto.runtime.run_handle import RunHandle
from tenuto.testing.factories import an_owner
from tests.cuts.cutting import Entry, Step, World
from tests.runtime.seams import advance, deliver_due, handle_of

A_SCHEDULE = NewSchedule(name="n", body={"message": "x"}, every=86_400.0)
PAST = datetime(2000, 1, 1, tzinfo=UTC)


async def nothing(w: World) -> None:
    """There is nothing yet."""


async def stored(w: World) -> None:
    """A session that the store alone keeps."""
    await w.store.create(w.id(), state={"messages": ["a"], "big": "x" * 2000}, logs={"messages"})


async def laned(w: World) -> None:
    """The same, with its lane taken."""
    await stored(w)
    w.facts |= {"lane": await w.store.lanes.acquire(w.id(), an_owner(), nonce="n"), "outcome": None}


async def running(w: World) -> None:
    """The same, with a run under way and a call that it began."""
    await laned(w)
    lane, run_id = w.facts["lane"], w.id("run")
    begin = BeginRun(run_id=run_id, invocation_id=w.id("invocation"))
    effect = StartEffect(step=1, key="call", kind=EffectKind.TOOL, request={})
    commit = Commit(
        key=lane.key, operation_id="begin", life=1, generation=lane.generation, run=begin, effects=(effect,)
    )
    await w.store.commit(commit)


async def sent(w: World) -> None:
    """A session that sent something."""
    await stored(w)
    new = NewOutgoing(kind="wake", target=SessionKey(w.id()), body={})
    receipt = await w.store.commit(Commit(key=SessionKey(w.id()), operation_id="sent", life=1, outgoing=(new,)))
    w.facts["outgoing"] = receipt.outgoing_ids[0]


async def scheduled(w: World) -> None:
    """A session with a schedule that is due."""
    await stored(w)
    await w.store.schedules.declare(w.id(), A_SCHEDULE)
    w.clock.advance(86_400)


async def paused_schedule(w: World) -> None:
    """A session with a schedule that is paused."""
    await scheduled(w)
    await w.store.schedules.pause(w.id(), "n")


async def queued(w: World) -> None:
    """A session with something in its inbox."""
    await idle(w)
    w.facts["input"] = await _session(w).enqueue("hello", key="k")


async def family(w: World) -> None:
    """A root, its child and the child's child."""
    await idle(w)
    await w.runtime.create("echo", session_id=w.id("child"), parent=w.id())
    await w.runtime.create("echo", session_id=w.id("grandchild"), parent=w.id("child"))


async def half_deleted(w: World) -> None:
    """A family whose delete was cut off."""
    await family(w)
    w.faults.fail_call(3)
    with suppress(StoreUnavailable):
        await w.store.delete(w.id(), cascade=True)
    w.faults.heal()


async def expired(w: World) -> None:
    """A session whose time has come."""
    await w.store.create(w.id(), state={"messages": ["a"]}, logs={"messages"}, profile=Profile(expires_at=PAST))


async def idle(w: World) -> None:
    """A session of a program, before its first turn."""
    await w.runtime.create("echo", session_id=w.id())


async def talked(w: World) -> None:
    """A session that had two turns."""
    await idle(w)
    w.facts["outcome"] = await w.runtime.send(w.id(), "one")
    w.facts["first"] = w.facts["outcome"].run_id
    w.facts["input"] = (await w.runtime.send(w.id(), "two", key="two")).input_id


async def aged(w: World) -> None:
    """The same, a while ago."""
    await talked(w)
    w.clock.advance(1)


async def waiting(w: World) -> None:
    """A session that waits for an answer."""
    await w.runtime.create("waits", session_id=w.id())
    outcome = await w.runtime.send(w.id(), "ask", key="ask")
    w.facts |= {"wait": outcome.waits[0].wait_id, "input": outcome.input_id, "run": outcome.run_id}


async def answered(w: World) -> None:
    """The same, with its answer on the way."""
    await waiting(w)
    await w.runtime.answer(w.facts["wait"], "yes", run=False)


async def failed(w: World) -> None:
    """A session whose turn failed."""
    await w.runtime.create("fails", session_id=w.id())
    await w.runtime.send(w.id(), "try")


async def in_doubt(w: World) -> None:
    """A session with a call of which nobody knows what became."""
    await running(w)
    lane = w.facts["lane"]
    end = EndRun(status=RunStatus.FAILED, error={"category": "lost", "message": "lost"})
    run = RunRef(run_id=w.id("run"))
    commit = Commit(key=lane.key, operation_id="end", life=1, generation=lane.generation, run=run, end=end, disarm=True)
    await w.store.commit(commit)
    (w.facts["effect"],) = await w.store.effects.list(w.id(), in_doubt=True)


async def paused(w: World) -> None:
    """A session whose graph waits for a signal."""
    outcome = await w.graph.run({"messages": ["ask"]}, session_id=w.id(), invocation_id=w.id("invocation"))
    assert outcome.wait is not None
    w.facts["wait"] = outcome.wait.wait_id


async def unsaved(w: World) -> None:
    """A run of a graph whose last save failed."""
    await w.graph.run({"messages": ["one"]}, session_id=w.id())
    before = w.faults.calls
    await w.graph.run({"messages": ["two"]}, session_id=w.id())
    w.faults.fail_call(w.faults.calls - before)
    outcome = await w.graph.run({"messages": ["three"]}, session_id=w.id())
    w.faults.heal()
    w.facts["error"] = outcome.error


def _commit(w: World) -> Commit:
    return Commit(
        key=SessionKey(w.id()),
        operation_id="op",
        life=1,
        save=True,
        document={"n": 1},
        logs={"messages": Append(items=("b",))},
        events=(NewEvent(type="e"),),
    )


def _session(w: World) -> Session[Any]:
    return w.runtime.session(w.id())


async def _started(w: World) -> None:
    handle = await _session(w).start("hello", key="k")
    await handle.wait()


async def _refused(w: World) -> None:
    item = await w.store.outbox.get(w.facts["outgoing"])
    assert item is not None
    await w.store.outbox.refuse(item, {"category": "gone", "message": "gone"})


async def _whole_tree(w: World) -> None:
    """Delete a tree again: what is left of it goes now, and the report is of all of it."""
    report = await _session(w).delete(cascade=True)
    assert (report.sessions, len(report.children)) == (3, 1)
    assert not any([await w.store.exists(w.id(each)) for each in ("s", "child", "grandchild")])


async def _worked(w: World) -> None:
    working = asyncio.ensure_future(w.runtime.worker(poll=0.005).work())
    try:
        async with asyncio.timeout(8):
            while (await w.runtime.outcome(w.facts["input"])).status != "completed":
                await asyncio.sleep(0.002)
    finally:
        working.cancel()
        await asyncio.wait([working])


KEPT = frozenset({"session", "state", "wait", "input", "outgoing"})
"""What is compared of a graph's session: a run that the store failed stays on record as failed."""


async def _graph_again(w: World, said: str = "one") -> None:
    """Go on with an invocation that was cut off; one that left nothing to go on with is run once more."""
    invocation = w.id("invocation")
    runs = await w.store.runs.of_invocation(invocation)
    if runs and runs[-1].status in (RunStatus.COMPLETED, RunStatus.SUSPENDED):
        return
    outcome = await w.graph.run(resume_invocation=invocation) if runs else None
    if outcome is None or outcome.error is not None:
        outcome = await w.graph.run({"messages": [said]}, session_id=w.id())
    assert outcome.error is None, outcome.error


async def _answered_again(w: World) -> None:
    """Answer again what still waits; go on with what was cut off after that."""
    runs = await w.store.runs.of_invocation(w.id("invocation"))
    if runs[-1].status is RunStatus.SUSPENDED:
        await w.graph.run(resume_invocation=w.id("invocation"), signal_payload={"approved": True})
    else:
        await _graph_again(w)


async def _saved_again(w: World) -> None:
    if isinstance(w.facts["error"], SessionSaveFailed):
        await w.graph.save_again(w.facts["error"])


async def stopped(w: World) -> None:
    """A run that was asked to stop."""
    await running(w)
    await w.store.runs.request_stop(w.id("run"))


def _first(body: str) -> NewInput:
    return NewInput(kind=InputKind.MESSAGE, body={"message": {"role": "user", "content": body}}, key="k")


def _record(w: World) -> SessionRecord:
    return SessionRecord(session_id=w.id(), state={"messages": ["a", "b"], "n": 1}, schema_version="")


def _run(w: World, run_id: str) -> RunHandle[Any]:
    """Return the handle of a run that was started before."""
    begun = Input(
        input_id=run_id,
        key=SessionKey(w.id()),
        life=1,
        seq=0,
        kind=InputKind.MESSAGE,
        input_key=None,
        digest="",
        body=None,
        has_body=False,
        boundary=None,
        due_at=None,
        status=InputStatus.CONSUMED,
        run_id=run_id,
        log=None,
        position=None,
        rolled_back=False,
        created_at=PAST,
        settled_at=PAST,
    )

    async def over() -> Any:
        return w.facts["outcome"]

    return handle_of(w.runtime, begun, asyncio.ensure_future(over()))


ENTRIES: dict[str, Entry] = {
    "store.create": Entry(
        scene=nothing,
        call=lambda w: w.store.create(w.id(), state={"messages": ["a"]}, logs={"messages"}, operation_id="op"),
    ),
    "store.fork": Entry(
        scene=talked, call=lambda w: w.store.fork(w.id(), w.id("fork"), first=_first("x"), operation_id="op")
    ),
    "store.copy_across": Entry(
        scene=stored, call=lambda w: w.store.copy_across(w.id(), w.id("copy"), operation_id="op")
    ),
    "store.commit": Entry(scene=stored, call=lambda w: w.store.commit(_commit(w))),
    "store.save": Entry(scene=stored, call=lambda w: w.store.save(w.id(), _record(w))),
    "store.delete": Entry(scene=stored, call=lambda w: w.store.delete(w.id()), sweeps=True),
    "store.delete, a tree": Entry(
        scene=family, call=lambda w: w.store.delete(w.id(), cascade=True), again=_whole_tree, sweeps=True
    ),
    "store.lanes.acquire": Entry(
        scene=stored, call=lambda w: w.store.lanes.acquire(w.id(), an_owner(), nonce="n", ttl=3000)
    ),
    "store.lanes.renew": Entry(scene=laned, call=lambda w: w.store.lanes.renew([w.facts["lane"]])),
    "store.lanes.disarm": Entry(
        scene=laned, call=lambda w: w.store.lanes.disarm(w.facts["lane"]), tolerates=(LaneLost,)
    ),
    "store.runs.request_stop": Entry(scene=running, call=lambda w: w.store.runs.request_stop(w.id("run"))),
    "store.runs.withdraw_stop": Entry(scene=stopped, call=lambda w: w.store.runs.withdraw_stop(w.id("run"))),
    "store.events.append": Entry(
        scene=laned,
        call=lambda w: w.store.events.append(w.facts["lane"], [NewEvent(type="e")], after=0),
        tolerates=(VersionConflict,),
    ),
    "store.inbox.enqueue": Entry(scene=idle, call=lambda w: w.store.inbox.enqueue(w.id(), _first("x"))),
    "store.inbox.cancel": Entry(scene=queued, call=lambda w: w.store.inbox.cancel(w.id(), [w.facts["input"]])),
    "store.inbox.refuse": Entry(
        scene=queued, call=lambda w: w.store.inbox.refuse(w.id(), w.facts["input"], {"category": "no"})
    ),
    "store.schedules.declare": Entry(scene=stored, call=lambda w: w.store.schedules.declare(w.id(), A_SCHEDULE)),
    "store.schedules.remove": Entry(scene=scheduled, call=lambda w: w.store.schedules.remove(w.id(), "n")),
    "store.schedules.pause": Entry(scene=scheduled, call=lambda w: w.store.schedules.pause(w.id(), "n")),
    "store.schedules.resume": Entry(scene=paused_schedule, call=lambda w: w.store.schedules.resume(w.id(), "n")),
    "store.schedules.fire": Entry(scene=scheduled, call=lambda w: w.store.schedules.fire(w.id(), "n")),
    "store.outbox.mark": Entry(
        scene=sent,
        call=lambda w: w.store.outbox.mark(w.facts["outgoing"], OutgoingStatus.DONE),
        tolerates=(DeliveryLost,),
    ),
    "store.outbox.refuse": Entry(scene=sent, call=_refused, tolerates=(DeliveryLost,)),
    "store.upkeep.expire": Entry(scene=expired, call=lambda w: w.store.upkeep.expire(), sweeps=True),
    "store.upkeep.finish_deletes": Entry(
        scene=half_deleted, call=lambda w: w.store.upkeep.finish_deletes(), sweeps=True
    ),
    "store.upkeep.gc": Entry(scene=half_deleted, call=lambda w: w.store.upkeep.gc(grace=0), sweeps=True, alone=True),
    "store.upkeep.prune": Entry(
        scene=aged,
        call=lambda w: w.store.upkeep.prune(
            receipts_older_than=0, events_keep=1, chunks_older_than=0, runs_older_than=0, inputs_older_than=0
        ),
    ),
    "store.upkeep.vacuum": Entry(scene=stored, call=lambda w: w.store.upkeep.vacuum(), tolerates=(Unsupported,)),
    "sessions.create": Entry(
        scene=nothing, call=lambda w: w.runtime.create("echo", {"n": 1}, session_id=w.id(), key="op")
    ),
    "sessions.create, a child": Entry(
        scene=idle, call=lambda w: w.runtime.create("echo", session_id=w.id("c"), parent=w.id(), key="op")
    ),
    "sessions.create, unless it exists": Entry(
        scene=nothing, call=lambda w: w.runtime.create("echo", session_id=w.id(), exists_ok=True)
    ),
    "sessions.send": Entry(scene=idle, call=lambda w: w.runtime.send(w.id(), "hello", key="k"), runs_turns=True),
    "sessions.execute": Entry(scene=talked, call=lambda w: w.runtime.execute(w.id(), WriteMetadata({"n": 1}))),
    "sessions.answer": Entry(
        scene=waiting, call=lambda w: w.runtime.answer(w.facts["wait"], "yes", key="k"), runs_turns=True
    ),
    "session.send": Entry(scene=idle, call=lambda w: _session(w).send("hello", key="k"), runs_turns=True),
    "session.send, warm": Entry(scene=talked, call=lambda w: _session(w).send("hello", key="k"), runs_turns=True),
    "session.send, to one that waits": Entry(
        scene=waiting, call=lambda w: _session(w).send("never mind", key="k"), runs_turns=True
    ),
    "session.start": Entry(scene=idle, call=_started, runs_turns=True),
    "session.enqueue": Entry(scene=idle, call=lambda w: _session(w).enqueue("hello", key="k")),
    "session.cancel": Entry(scene=queued, call=lambda w: _session(w).cancel(w.facts["input"])),
    "session.execute": Entry(
        scene=talked,
        call=lambda w: _session(w).execute(ForkSession(session_id=w.id("f"), message="x", key="k")),
        runs_turns=True,
    ),
    "session.execute, a change of state": Entry(
        scene=waiting, call=lambda w: _session(w).execute(ClearSession()), repeats=True
    ),
    "session.fork": Entry(
        scene=talked, call=lambda w: _session(w).fork(at=w.facts["first"], session_id=w.id("fork"), key="k")
    ),
    "session.fork, with a message": Entry(
        scene=talked,
        call=lambda w: _session(w).fork(session_id=w.id("fork"), message="or else", key="k"),
        runs_turns=True,
    ),
    "session.schedule": Entry(scene=idle, call=lambda w: _session(w).schedule("n", "hello", every=3600)),
    "session.unschedule": Entry(scene=scheduled, call=lambda w: _session(w).unschedule("n")),
    "session.pause_schedule": Entry(scene=scheduled, call=lambda w: _session(w).pause_schedule("n")),
    "session.resume_schedule": Entry(scene=paused_schedule, call=lambda w: _session(w).resume_schedule("n")),
    "session.regenerate": Entry(scene=talked, call=lambda w: _session(w).regenerate(key="again"), runs_turns=True),
    "session.regenerate, queued": Entry(
        scene=talked, call=lambda w: _session(w).regenerate(key="again", when_busy="queue"), runs_turns=True
    ),
    "session.regenerate, on a fork": Entry(
        scene=talked, call=lambda w: _session(w).regenerate(w.facts["first"], "again", fork=True), runs_turns=True
    ),
    "session.rewind": Entry(scene=talked, call=lambda w: _session(w).rewind(w.facts["first"]), repeats=True),
    "session.delete": Entry(
        scene=talked, call=lambda w: _session(w).delete(), tolerates=(SessionNotFound,), sweeps=True
    ),
    "session.delete, a tree": Entry(
        scene=family, call=lambda w: _session(w).delete(cascade=True), again=_whole_tree, sweeps=True
    ),
    "session.answer": Entry(scene=waiting, call=lambda w: _session(w).answer(w.facts["wait"], "yes"), runs_turns=True),
    "session.abandon_waits": Entry(scene=waiting, call=lambda w: _session(w).abandon_waits()),
    "session.resume": Entry(
        scene=failed, call=lambda w: _session(w).resume(), tolerates=(InvalidInput, TenutoError), runs_turns=True
    ),
    "session.stop": Entry(scene=running, call=lambda w: _session(w).stop(run_id=w.id("run"))),
    "session.withdraw_stop": Entry(scene=stopped, call=lambda w: _session(w).withdraw_stop(w.id("run"))),
    "session.settle_effect": Entry(
        scene=in_doubt,
        call=lambda w: _session(w).settle_effect(w.facts["effect"], result="done"),
        tolerates=(EffectNotOpen,),
    ),
    "runtime.drain": Entry(scene=queued, call=lambda w: w.runtime.drain(), runs_turns=True),
    "runtime.drain, one session": Entry(scene=queued, call=lambda w: advance(w.runtime, w.id()), runs_turns=True),
    "runtime.drain, one delivery": Entry(scene=answered, call=lambda w: deliver_due(w.runtime)),
    "runtime.work": Entry(scene=queued, call=_worked, again=lambda w: w.runtime.drain(), runs_turns=True, cancels=True),
    "run.stop": Entry(scene=running, call=lambda w: _run(w, w.id("run")).stop()),
    "graph.run": Entry(
        scene=nothing,
        call=lambda w: w.graph.run({"messages": ["one"]}, session_id=w.id(), invocation_id=w.id("invocation")),
        again=_graph_again,
        runs_turns=True,
        compared=KEPT,
    ),
    "graph.run, to a pause": Entry(
        scene=nothing,
        call=lambda w: w.graph.run({"messages": ["ask"]}, session_id=w.id(), invocation_id=w.id("invocation")),
        again=lambda w: _graph_again(w, "ask"),
        runs_turns=True,
        compared=KEPT,
    ),
    "graph.run, from a pause": Entry(
        scene=paused,
        call=lambda w: w.graph.run(resume_invocation=w.id("invocation"), signal_payload={"approved": True}),
        again=_answered_again,
        runs_turns=True,
        compared=KEPT,
    ),
    "graph.resume": Entry(
        scene=paused,
        call=lambda w: w.graph.resume(w.facts["wait"], {"approved": True}),
        again=_answered_again,
        runs_turns=True,
        compared=KEPT,
    ),
    "graph.invoke": Entry(
        scene=nothing,
        call=lambda w: w.graph.invoke({"messages": ["one"]}, session_id=w.id(), invocation_id=w.id("invocation")),
        again=_graph_again,
        runs_turns=True,
        compared=KEPT,
    ),
    "graph.stream": Entry(
        scene=nothing,
        call=lambda w: _all(w.graph.stream({"messages": ["one"]}, session_id=w.id(), invocation_id=w.id("invocation"))),
        again=_graph_again,
        runs_turns=True,
        compared=KEPT,
    ),
    "graph.cancel": Entry(scene=paused, call=lambda w: w.graph.cancel(w.id("invocation")), tolerates=(TenutoError,)),
    "graph.save_again": Entry(scene=unsaved, call=_saved_again, survives=False),
}
"""Every verb that writes; after a comma stands what is special about a further scene of it."""


async def _all(items: Any) -> list[Any]:
    return [item async for item in items]


async def _subscribed(w: World) -> None:
    async for _ in w.store.events.subscribe(w.id()):
        break


READS: dict[str, Step] = {
    "store.dump": lambda w: w.store.dump(),
    "store.exists": lambda w: w.store.exists(w.id()),
    "store.head": lambda w: w.store.head(w.id()),
    "store.life": lambda w: w.store.life(w.id()),
    "store.list": lambda w: w.store.list(),
    "store.load": lambda w: w.store.load(w.id()),
    "store.load_with_run": lambda w: w.store.load_with_run(w.id()),
    "store.moment": lambda w: w.store.moment(),
    "store.receipt": lambda w: w.store.receipt(w.id(), "op"),
    "store.stamp": lambda w: w.store.stamp(w.id()),
    "store.lanes.inspect": lambda w: w.store.lanes.inspect(w.id()),
    "store.lanes.orphans": lambda w: w.store.lanes.orphans(),
    "store.logs.count": lambda w: w.store.logs.count(w.id(), "messages"),
    "store.logs.read": lambda w: w.store.logs.read(w.id(), "messages"),
    "store.logs.tail": lambda w: w.store.logs.tail(w.id(), "messages", 2),
    "store.runs.current": lambda w: w.store.runs.current(w.id()),
    "store.runs.get": lambda w: w.store.runs.get(w.facts["first"]),
    "store.runs.of_invocation": lambda w: w.store.runs.of_invocation("i"),
    "store.runs.of_session": lambda w: w.store.runs.of_session(w.id()),
    "store.runs.resumable": lambda w: w.store.runs.resumable(),
    "store.runs.running": lambda w: w.store.runs.running(),
    "store.runs.stops": lambda w: w.store.runs.stops([w.facts["first"]]),
    "store.checkpoints.get": lambda w: w.store.checkpoints.get(w.id(), 2),
    "store.checkpoints.latest": lambda w: w.store.checkpoints.latest(w.id()),
    "store.checkpoints.of_session": lambda w: w.store.checkpoints.of_session(w.id()),
    "store.checkpoints.points": lambda w: w.store.checkpoints.points(w.id()),
    "store.waits.for_signal": lambda w: w.store.waits.for_signal("question"),
    "store.waits.get": lambda w: w.store.waits.get("w"),
    "store.waits.of_invocation": lambda w: w.store.waits.of_invocation(w.id(), "i"),
    "store.waits.of_session": lambda w: w.store.waits.of_session(w.id()),
    "store.waits.below": lambda w: w.store.waits.below(w.id()),
    "store.waits.open": lambda w: w.store.waits.open(),
    "store.events.read": lambda w: w.store.events.read(w.id()),
    "store.events.subscribe": _subscribed,
    "store.inbox.due": lambda w: w.store.inbox.due(),
    "store.inbox.find": lambda w: w.store.inbox.find(w.id(), "two"),
    "store.inbox.first": lambda w: w.store.inbox.first(w.id()),
    "store.inbox.get": lambda w: w.store.inbox.get(w.facts["input"]),
    "store.inbox.list": lambda w: w.store.inbox.list(w.id()),
    "store.inbox.next": lambda w: w.store.inbox.next(w.id()),
    "store.inbox.next_due": lambda w: w.store.inbox.next_due(),
    "store.inbox.stranded": lambda w: w.store.inbox.stranded(),
    "store.effects.get": lambda w: w.store.effects.get(w.id(), origin_id="o", effect_key="k"),
    "store.effects.list": lambda w: w.store.effects.list(w.id()),
    "store.usage.report": lambda w: w.store.usage.report(w.id()),
    "store.schedules.list": lambda w: w.store.schedules.list(),
    "store.schedules.due": lambda w: w.store.schedules.due(),
    "store.schedules.of_session": lambda w: w.store.schedules.of_session(w.id()),
    "store.outbox.get": lambda w: w.store.outbox.get("o"),
    "store.outbox.next_due": lambda w: w.store.outbox.next_due(),
    "store.outbox.of_session": lambda w: w.store.outbox.of_session(w.id()),
    "store.outbox.pending": lambda w: w.store.outbox.pending(),
    "sessions.get": lambda w: w.runtime.get(w.id()),
    "sessions.list": lambda w: w.runtime.list(),
    "sessions.outcome": lambda w: w.runtime.outcome(w.facts["input"]),
    "sessions.schedules": lambda w: w.runtime.schedules(),
    "sessions.waits": lambda w: w.runtime.waits(),
    "operator.list": lambda w: w.runtime.across_tenants().list(),
    "operator.schedules": lambda w: w.runtime.across_tenants().schedules(),
    "operator.waits": lambda w: w.runtime.across_tenants().waits(),
    "session.effects_in_doubt": lambda w: _session(w).effects_in_doubt(),
    "session.events": lambda w: _all(_session(w).events(live=False)),
    "session.get": lambda w: _session(w).get(),
    "session.info": lambda w: _session(w).info(),
    "session.messages": lambda w: _session(w).messages(),
    "session.runs": lambda w: _session(w).runs(),
    "session.schedules": lambda w: _session(w).schedules(),
    "session.usage": lambda w: _session(w).usage(),
    "session.waits": lambda w: _session(w).waits(),
    "run.wait": lambda w: _run(w, w.facts["first"]).wait(),
    "run.result": lambda w: _run(w, w.facts["first"]).result(),
    "run.events": lambda w: _all(_run(w, w.facts["first"]).events()),
    "run.text": lambda w: _all(_run(w, w.facts["first"]).text()),
    "graph.waiting": lambda w: w.graph.waiting(),
    "graph.drain": lambda w: w.graph.drain(),
    "graph.drain_events_for": lambda w: w.graph.drain_events_for("i"),
}
"""Every verb that only looks, or waits."""

OTHERS = {
    "store.aclose": "ends the store",
    "store.sibling": "opens the same data once more",
    "store.keeper.aclose": "ends the keeper",
    "store.keeper.confirm": "renews by lanes.renew, which is cut",
    "runtime.aclose": "waits for the turns that were started",
}
"""Every verb that is not about what is stored, and why."""
