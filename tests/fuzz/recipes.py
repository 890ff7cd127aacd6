"""A call of every verb that is accepted as it stands, and of every part a commit may have.

A verb without a recipe fails the run: whoever adds one says here how it is called.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from tenuto.ids import new_id
from tenuto.model import commit as commit_parts
from tenuto.model.effect import EffectKind, FinishEffect, SettleEffect, StartEffect
from tenuto.model.event import NewEvent
from tenuto.model.input import Consume, InputKind, NewInput
from tenuto.model.lane import HostProof, Owner, Rearm
from tenuto.model.outgoing_item import NewOutgoing, OutgoingStatus
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.schedule import NewSchedule
from tenuto.model.session import Profile, SessionFilter, SessionKey, SessionRecord
from tenuto.model.token_usage import NewUsage
from tenuto.runtime.change import action as actions
from tests.fuzz.world import A_SCHEDULE, DAY, World

Arguments = dict[str, Any]
Recipe = Callable[[World], Awaitable[Arguments]]

RECIPES: dict[str, Recipe] = {}

OF = "of"
"""Among the arguments of a session's verb: the session whose handle it is called on, if that is a special one."""

LEFT_OUT = {
    "store.aclose": "ends the store",
    "store.dump": "takes nothing and changes nothing",
    "store.sibling": "takes nothing and changes nothing",
    "store.backend": "the protocol between rules and databases, which no caller uses",
    "store.keeper": "renews lanes from its own thread",
    "store.deletions": "the work behind `store.delete`",
    "store.events.subscribe": "never ends; it reads by `store.events.read`",
    "runtime.aclose": "ends the runtime",
    "runtime.work": "never ends; `runtime.drain` does the same until there is nothing to do",
}
"""What is not fuzzed by itself, and why."""


def recipe(name: str) -> Callable[[Recipe], Recipe]:
    """Note how a verb is called."""

    def noted(make: Recipe) -> Recipe:
        RECIPES[name] = make
        return make

    return noted


def simple(*names: str, **fixed: Any) -> None:
    """Note verbs that take these arguments."""

    async def make(world: World) -> Arguments:
        return {name: await value(world) if callable(value) else value for name, value in fixed.items()}

    for name in names:
        RECIPES[name] = make


async def _key(world: World) -> SessionKey:
    return await world.session()


async def _schedule(_: World) -> NewSchedule:
    return A_SCHEDULE


async def _scheduled(world: World) -> SessionKey:
    return await world.scheduled()


async def _life(world: World) -> int:
    return world.lives[await world.session()]


async def _talk(world: World) -> str:
    return (await world.talk()).session_id


async def _fresh_id(_: World) -> str:
    return new_id()


async def _run(world: World) -> str:
    return (await world.running())[1]


async def _lane(world: World) -> Any:
    return (await world.running())[0]


async def _input(world: World) -> str:
    return (await world.queued())[1]


async def _wait(world: World) -> str:
    return (await world.waiting())[1]


simple("store.moment", "store.upkeep.expire", "store.upkeep.finish_deletes", "store.inbox.next_due")
simple("store.outbox.next_due")
simple("store.exists", "store.life", "store.head", "store.stamp", "store.load", "store.load_with_run", key=_key)
simple("store.receipt", key=_key, operation_id="op")
simple("store.list", filter={"tag": "t"}, limit=10, after=None)
simple("store.lanes.inspect", "store.runs.current", "store.inbox.first", key=_key)
simple("store.lanes.orphans", "store.runs.running", "store.outbox.pending", "store.inbox.stranded", limit=10)
simple("store.lanes.disarm", lane=_lane)
simple("store.logs.count", key=_key, log="messages")
simple("store.logs.read", key=_key, log="messages", start=0, stop=1, end=None)
simple("store.logs.tail", key=_key, log="messages", count=1, end=None)
simple("store.runs.get", run_id=_run, tenant="")
simple("store.runs.of_invocation", invocation_id="i", tenant="")
simple("store.runs.of_session", key=_key, limit=10, before=None)
simple("store.runs.request_stop", run_id=_run, kind="interrupt", reason="because", tenant="", session=None)
simple("store.checkpoints.get", key=_key, commit_number=2)
simple("store.checkpoints.latest", key=_key, run_id=None)
simple("store.checkpoints.of_session", key=_key, run_id=None, limit=10, before=None)
simple("store.checkpoints.points", key=_key, before=None, after=None, limit=10)
simple("store.waits.get", wait_id=_wait, tenant="")
simple("store.waits.for_signal", signal_id="s", tenant="", status="open")
simple("store.waits.of_invocation", key=_key, origin_id="o")
simple("store.waits.of_session", key=_key, run_id=None, status=None)
simple("store.waits.below", key=_key)
simple("store.waits.open", tenant="", kind="signal", user_id=None, graph=None, opened_before=None, limit=10, after=None)
simple("store.runs.resumable", tenant="", limit=10, after="")
simple("store.events.read", key=_key, after=0, run_id=None, limit=10)
simple("store.inbox.due", limit=10, after=None)
simple("store.inbox.find", key=_key, input_key="k")
simple("store.inbox.get", input_id=_input, tenant="")
simple("store.inbox.list", key=_key, limit=10, after=0)
simple("store.inbox.next", key=_key, boundary=None, run_id=None, limit=10)
simple("store.effects.get", key=_key, origin_id="o", effect_key="k", step=0, namespace="")
simple("store.effects.list", key=_key, origin_id=None, in_doubt=False, limit=10, after=None)
simple("store.usage.report", key=_key, run_id=None, cascade=False)
simple("store.outbox.of_session", key=_key, limit=10, after=None)
simple("store.schedules.due", limit=10)
simple("store.schedules.list", tenant="", paused=False, limit=10, after=None)
simple("store.schedules.of_session", key=_key)
simple("store.schedules.fire", "store.schedules.remove", key=_key, name="n")
simple("store.schedules.resume", key=_scheduled, name="n")
simple("store.schedules.pause", key=_scheduled, name="n", reason="because")
simple("store.schedules.declare", key=_key, new=_schedule)
simple("session.schedules")
simple("session.unschedule", name="n")
simple("session.pause_schedule", name="n", reason="because", of=_scheduled)
simple("session.resume_schedule", name="n", of=_scheduled)
simple(
    "session.schedule",
    name="n",
    message="hi",
    every=None,
    cron="0 3 * * *",
    tz="UTC",
    missed="latest",
    when_waiting="hold",
)
simple("store.upkeep.gc", grace=DAY)
simple(
    "store.upkeep.prune",
    receipts_older_than=DAY,
    events_older_than=DAY,
    events_keep=10_000,
    chunks_older_than=DAY,
    runs_older_than=DAY,
    inputs_older_than=DAY,
    outgoing_older_than=DAY,
)
simple("store.upkeep.vacuum", pages=1)
simple("store.delete", key=_key, cascade=False)

simple("sessions.get", session_id=_talk)
simple("sessions.list", program="echo", status=None, user_id=None, tag="t", parent=None, limit=10, after=None)
simple("sessions.outcome", input_or_run_id=_input)
simple("sessions.send", session_id=_talk, message="hi", key=_fresh_id, when_busy=None)
simple("sessions.execute", session_id=_talk, action=actions.WriteMetadata({"m": 1}))
simple("sessions.waits", kind=None, user_id="u", opened_before=None, limit=10, after=None)
simple("sessions.schedules", "operator.schedules", paused=None, limit=10, after=None)
simple("operator.waits", kind="approval", user_id=None, opened_before=None, limit=10, after=None)
simple("operator.list", program="echo", status=None, limit=10, after=None)
simple("runtime.drain", concurrency=1)
simple("session.abandon_waits", "session.effects_in_doubt", "session.get", "session.info")
simple("session.waits", children=True)
simple("session.delete", cascade=False)
simple("session.execute", action=actions.WriteMetadata({"m": 1}))
simple("session.fork", at=None, session_id=_fresh_id, message=None, key=None)
simple("session.messages", after=None, limit=10)
simple("session.runs", limit=10, before=None)
simple("session.send", "session.start", message="hi", key=_fresh_id, when_busy=None)
simple("session.usage", cascade=False)
simple("run.wait", "run.result", "run.events", "run.text")
simple("run.stop", kind="interrupt", reason="because")


@recipe("store.create")
async def _create(_: World) -> Arguments:
    profile = Profile(title="t", tags=("a",), metadata={"m": 1})
    return {
        "key": new_id(),
        "state": {"messages": [1], "a": {"b": 1}},
        "logs": {"messages"},
        "schema_version": "1",
        "profile": profile,
        "status": "active",
        "events": [NewEvent(type="e", data=1)],
        "parent_life": None,
        "operation_id": new_id(),
    }


@recipe("sessions.create")
async def _sessions_create(_: World) -> Arguments:
    return {
        "program": "echo",
        "seed": {"s": 1},
        "session_id": new_id(),
        "user_id": "u",
        "tags": ["t"],
        "metadata": {"m": 1},
        "title": "t",
        "expires_at": None,
        "parent": None,
        "logs": (),
        "exists_ok": False,
        "key": new_id(),
    }


@recipe("store.save")
async def _save(world: World) -> Arguments:
    key = await world.session()
    record = SessionRecord(session_id=key.session_id, state={"messages": [1], "a": 2})
    return {"key": key, "record": record, "expected_version": None}


@recipe("store.commit")
async def _commit(world: World) -> Arguments:
    return {"commit": await a_commit(world, save=True, document={"a": new_id()})}


@recipe("store.fork")
async def _fork(world: World) -> Arguments:
    return {
        "source": await world.session(),
        "target": new_id(),
        "at": None,
        "profile": None,
        "expected_commit": None,
        "first": None,
        "operation_id": new_id(),
    }


@recipe("store.copy_across")
async def _copy(world: World) -> Arguments:
    return {"source": await world.session(), "target": new_id(), "operation_id": new_id()}


@recipe("store.lanes.acquire")
async def _acquire(world: World) -> Arguments:
    owner = Owner(owner_id="o", incarnation="i", host=HostProof(boot_id="b", pid=1))
    fixed = {"nonce": new_id(), "ttl": 1.0, "life": None, "alive": False}
    return {"key": SessionKey(new_id()), "owner": owner, **fixed}


@recipe("store.lanes.renew")
async def _renew(world: World) -> Arguments:
    lane, run_id = await world.running()
    return {"lanes": [lane], "ttl": DAY, "runs": [RunRef(run_id=run_id)], "tenant": ""}


@recipe("store.runs.stops")
async def _stops(world: World) -> Arguments:
    return {"run_ids": [(await world.running())[1]], "tenant": ""}


@recipe("store.runs.withdraw_stop")
async def _withdraw(world: World) -> Arguments:
    return {"run_id": (await world.stopped())[1]}


@recipe("session.withdraw_stop")
async def _session_withdraw(world: World) -> Arguments:
    lane, run_id = await world.stopped()
    return {OF: lane.key, "run_id": run_id}


@recipe("store.events.append")
async def _append(world: World) -> Arguments:
    lane, run_id = await world.running()
    return {"lane": lane, "events": [NewEvent(type="e", data=1)], "run": RunRef(run_id=run_id), "after": None}


@recipe("store.inbox.cancel")
async def _cancel(world: World) -> Arguments:
    key, input_id = await world.queued()
    return {"key": key, "ids": [input_id]}


@recipe("session.cancel")
async def _session_cancel(world: World) -> Arguments:
    key, input_id = await world.queued()
    return {OF: key, "input_ids": input_id}


@recipe("store.inbox.enqueue")
async def _enqueue(world: World) -> Arguments:
    new = NewInput(kind=InputKind.MESSAGE, body={"b": 1}, key=new_id(), delay=DAY)
    return {"key": await world.session(), "new": new, "interrupts": None}


@recipe("store.inbox.refuse")
async def _refuse(world: World) -> Arguments:
    key, input_id = await world.queued()
    return {"key": key, "input_id": input_id, "error": {"category": "c", "message": "m"}}


@recipe("store.outbox.get")
async def _outgoing(world: World) -> Arguments:
    return {"outbox_id": await world.sent(), "tenant": ""}


@recipe("store.outbox.mark")
async def _mark(world: World) -> Arguments:
    fixed = {"status": OutgoingStatus.PENDING, "expected": OutgoingStatus.PENDING, "attempts": None, "retry_in": DAY}
    return {"outbox_id": await world.sent(), **fixed}


@recipe("store.outbox.refuse")
async def _refuse_outgoing(world: World) -> Arguments:
    item = await world.store.outbox.get(await world.sent())
    return {"item": item, "error": {"category": "c", "message": "m"}}


@recipe("sessions.answer")
async def _answer(world: World) -> Arguments:
    _, wait_id, _ = await world.waiting()
    return {"wait": wait_id, "value": {"v": 1}, "error": None, "key": new_id(), "run": False}


@recipe("session.answer")
async def _session_answer(world: World) -> Arguments:
    key, wait_id, _ = await world.waiting()
    found = await world.store.waits.get(wait_id)
    return {OF: key, "wait": found, "value": {"v": 1}, "error": None, "key": new_id(), "run": False}


@recipe("session.enqueue")
async def _session_enqueue(_: World) -> Arguments:
    return {"message": "hi", "key": new_id(), "boundary": None, "due_at": None, "delay": DAY}


@recipe("session.events")
async def _events(world: World) -> Arguments:
    (run,) = await world.store.runs.of_session(await world.talk(), limit=1)
    return {"after": 0, "run": run.run_id, "live": False}


@recipe("session.resume")
async def _resume(world: World) -> Arguments:
    return {OF: await world.failed()}


@recipe("session.regenerate")
async def _regenerate(world: World) -> Arguments:
    (run,) = await world.store.runs.of_session(await world.talk(), limit=1)
    return {"run_id": run.run_id, "key": new_id(), "fork": False, "when_busy": "queue"}


@recipe("session.rewind")
async def _rewind(world: World) -> Arguments:
    (run,) = await world.store.runs.of_session(await world.talk(), limit=1)
    return {"to": run.run_id}


@recipe("session.settle_effect")
async def _settle(world: World) -> Arguments:
    effect = await world.doubt()
    return {OF: effect.key, "effect": effect, "result": {"r": 1}, "error": None}


@recipe("session.stop")
async def _stop(world: World) -> Arguments:
    lane, run_id = await world.running()
    return {OF: lane.key, "kind": "interrupt", "reason": "because", "run_id": run_id, "tree": False}


async def a_commit(world: World, **parts: Any) -> commit_parts.Commit:
    """Return a commit on a session that nobody holds."""
    key = parts.get("key") or await world.session()
    given: dict[str, Any] = {"key": key, "operation_id": new_id(), "life": world.lives[key]}
    return commit_parts.Commit(**(given | parts))


def a_run() -> commit_parts.BeginRun:
    """Return a run that is to begin."""
    return commit_parts.BeginRun(run_id=new_id(), invocation_id=new_id())


Embed = Callable[[World, Any], Awaitable[tuple[str, Arguments]]]
"""Puts a part into the arguments of a verb."""


class Part:
    """A dataclass that verbs take, as it is accepted, and the verb that takes it."""

    def __init__(self, kind: type, given: Callable[[World], Awaitable[Arguments]], embed: Embed) -> None:
        self.kind = kind
        self.given = given
        self.embed = embed


def _in_commit(name: str, *, several: bool = True, run: bool = True, **others: Any) -> Embed:
    async def embed(world: World, part: Any) -> tuple[str, Arguments]:
        parts: dict[str, Any] = {"run": a_run()} if run else {}
        parts |= {name: (part,) if several else part, **others}
        return "store.commit", {"commit": await a_commit(world, **parts)}

    return embed


def _given(**fixed: Any) -> Callable[[World], Awaitable[Arguments]]:
    async def given(world: World) -> Arguments:
        return {name: await value(world) if callable(value) else value for name, value in fixed.items()}

    return given


async def _settled(world: World, part: Any) -> tuple[str, Arguments]:
    key, _ = await world.open_wait()
    return "store.commit", {"commit": await a_commit(world, key=key, settle_waits=(part,))}


async def _consumed(world: World, part: Any) -> tuple[str, Arguments]:
    key, _ = await world.queued()
    return "store.commit", {"commit": await a_commit(world, key=key, run=a_run(), consume=(part,))}


async def _settled_effect(world: World, part: Any) -> tuple[str, Arguments]:
    effect = await world.doubt()
    return "store.commit", {"commit": await a_commit(world, key=effect.key, effects=(part,))}


async def _finished(world: World, part: Any) -> tuple[str, Arguments]:
    start = StartEffect(key="k", kind=EffectKind.TOOL, request=1)
    return "store.commit", {"commit": await a_commit(world, run=a_run(), effects=(start, part))}


async def _laned(world: World, part: Any) -> tuple[str, Arguments]:
    lane, _ = await world.running()
    commit = await a_commit(world, key=lane.key, generation=lane.generation, run=part, events=(NewEvent(type="e"),))
    return "store.commit", {"commit": commit}


async def _created(world: World, part: Any) -> tuple[str, Arguments]:
    return "store.create", {"key": new_id(), "profile": part}


async def _saved(world: World, part: Any) -> tuple[str, Arguments]:
    return "store.save", {"key": await world.session(), "record": part}


async def _wait_of_store(world: World) -> str:
    return (await world.open_wait())[1]


async def _origin(world: World) -> str:
    return (await world.doubt()).origin_id


async def _session_id(world: World) -> str:
    return (await world.session()).session_id


def _as(verb: str, name: str) -> Embed:
    async def embed(_: World, part: Any) -> tuple[str, Arguments]:
        return verb, {name: part}

    return embed


async def _owner(_: World, part: Any) -> tuple[str, Arguments]:
    return "store.lanes.acquire", {"key": new_id(), "owner": part}


async def _host(world: World, part: Any) -> tuple[str, Arguments]:
    return await _owner(world, Owner(owner_id="o", incarnation="i", host=part))


PARTS = [
    Part(
        commit_parts.Commit,
        _given(key=_key, operation_id=_fresh_id, life=_life, save=True),
        _as("store.commit", "commit"),
    ),
    Part(commit_parts.Append, _given(items=(1,)), _in_commit("logs", several=False, save=True)),
    Part(commit_parts.Reset, _given(items=(1,)), _in_commit("logs", several=False, save=True)),
    Part(
        commit_parts.BeginRun,
        _given(run_id=_fresh_id, invocation_id=_fresh_id),
        _in_commit("run", several=False, run=False),
    ),
    Part(commit_parts.TakeRun, _given(run_id=_run, attempt=1), _laned),
    Part(commit_parts.MetadataChange, _given(values={"m": 1}), _in_commit("metadata", several=False, run=False)),
    Part(RunRef, _given(run_id=_run), _laned),
    Part(commit_parts.EndRun, _given(status=RunStatus.FAILED), _in_commit("end", several=False)),
    Part(
        commit_parts.NextRun,
        _given(begin=a_run(), input_id=_input, log="messages", item=1),
        _in_commit("next_run", several=False),
    ),
    Part(commit_parts.NewCheckpoint, _given(step=1), _in_commit("checkpoint", several=False)),
    Part(commit_parts.OpenWait, _given(kind="signal"), _in_commit("open_waits")),
    Part(commit_parts.SettleWait, _given(wait_id=_wait_of_store), _settled),
    Part(NewEvent, _given(type="e"), _in_commit("events")),
    Part(NewInput, _given(kind="message", body=1), _in_commit("inputs")),
    Part(Consume, _given(input_id=_input), _consumed),
    Part(StartEffect, _given(key="k", kind="tool", request=1), _in_commit("effects")),
    Part(FinishEffect, _given(key="k", result=1), _finished),
    Part(SettleEffect, _given(key="call", origin_id=_origin, result=1), _settled_effect),
    Part(NewUsage, _given(model="m"), _in_commit("usage")),
    Part(NewOutgoing, _given(kind="wake", target=_key, delay=DAY), _in_commit("outgoing")),
    Part(Rearm, _given(nonce="n", ttl=1.0), _in_commit("rearm", several=False, generation=1, expected_commit=1)),
    Part(Profile, _given(title="t"), _created),
    Part(SessionRecord, _given(session_id=_session_id, state={"a": 1}), _saved),
    Part(SessionFilter, _given(), _as("store.list", "filter")),
    Part(Owner, _given(owner_id="o", incarnation="i"), _owner),
    Part(HostProof, _given(boot_id="b"), _host),
]

IN_LOGS = (commit_parts.Append, commit_parts.Reset)
"""Parts that are the write of a log, and stand in a commit under its name."""


ACTIONS: dict[str, dict[str, Any]] = {
    "SendMessage": {"message": "hi"},
    "SuspendSession": {},
    "ResumeSession": {},
    "CompleteSession": {},
    "FailSession": {"reason": "because"},
    "ClearSession": {"keep": ("messages",)},
    "RewindSession": {"to": "run"},
    "ForkSession": {},
    "ChangeSystemPrompt": {"prompt": "be kind"},
    "ChangeModel": {"model": "m"},
    "ChangeProgram": {"program": "elsewhere@2"},
    "WriteMetadata": {"values": {"m": 1}},
    "UpdateTask": {"tasks": [{"content": "c"}]},
    "StopRun": {},
    "DeleteSession": {},
}
"""The actions that ship, with what they are given; each is executed on a session of its own kind."""
