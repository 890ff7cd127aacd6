"""The rows of the matrix: every argument of every verb, every field of every part, found by introspection."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, NamedTuple, get_overloads

from tenuto import SessionRuntime, Store
from tenuto.model.session import SessionKey
from tenuto.runtime.change import action as actions
from tenuto.runtime.handle import Session
from tenuto.runtime.operator import Operator
from tenuto.runtime.run_handle import RunHandle
from tenuto.runtime.sessions import Sessions
from tenuto.store.open import memory_store
from tests.cuts.verbs import is_verb
from tests.fuzz.recipes import ACTIONS, IN_LOGS, LEFT_OUT, OF, PARTS, RECIPES, Arguments, Part
from tests.fuzz.world import World

Call = Callable[[], Awaitable[Any]]

KEPT = frozenset(
    {
        *("store.create.state", "store.create.schema_version"),
        *("Commit.document", "Commit.schema_version"),
        *("Append.items", "Reset.items", "EndRun.error", "EndRun.outcome"),
        *("NewCheckpoint.cursor", "NewCheckpoint.document"),
        *("OpenWait.kind", "OpenWait.signal_id", "OpenWait.schema", "OpenWait.metadata", "OpenWait.deadline"),
        *("SettleWait.answer", "NewEvent.type", "NewEvent.data"),
        *("StartEffect.key", "StartEffect.request", "StartEffect.namespace", "StartEffect.call_id"),
        *("FinishEffect.result", "FinishEffect.error", "SettleEffect.result", "SettleEffect.error"),
        *("NewUsage.model", "NewOutgoing.kind", "NewOutgoing.body", "NewOutgoing.due_at"),
        *("Profile.agent", "Profile.title", "Profile.preview", "Profile.user_id", "Profile.tags", "Profile.metadata"),
        *("Profile.definition", "Profile.policy", "Profile.mode", "Profile.workspace", "Profile.parent"),
        *("Profile.root", "Profile.failure_reason", "Profile.trace", "Profile.expires_at"),
        *("SessionRecord.state", "SessionRecord.schema_version", "BeginRun.correlation_id", "BeginRun.worker"),
        *("sessions.create.seed", "sessions.create.title", "sessions.create.metadata", "sessions.create.user_id"),
        *("sessions.create.tags", "sessions.create.expires_at", "sessions.send.message", "sessions.answer.value"),
        *("session.send.message", "session.start.message", "session.enqueue.message", "session.enqueue.due_at"),
        *("session.answer.value", "session.settle_effect.result"),
        *("WriteMetadata.values", "ChangeModel.model", "ChangeSystemPrompt.prompt", "FailSession.reason"),
    }
)
"""The places whose value, once accepted, has to be found again by a second reader."""


class Place(NamedTuple):
    """Where a nasty value is put: `make` returns the call with it in place, or, of a whole call, as it is."""

    name: str
    make: Callable[[World, Any], Awaitable[Call]]
    is_whole: bool = False


@cache
def _store() -> Store:
    return memory_store()


_FACES: dict[str, type] = {
    "store": Store,
    "sessions": Sessions,
    "runtime": SessionRuntime,
    "operator": Operator,
    "session": Session,
    "run": RunHandle,
}


@cache
def _owners() -> dict[str, type]:
    """Return every class that has verbs: the faces of the runtime, the store and its facets."""
    facets = {
        f"store.{name}": type(facet)
        for name, facet in vars(_store()).items()
        if not name.startswith("_") and type(facet).__module__.startswith("tenuto.store")
    }
    return _FACES | facets


@cache
def verbs() -> tuple[str, ...]:
    """Find every public coroutine of the store, its facets, the runtime, and the handles of sessions and runs."""
    found: list[str] = []
    for owner, holder in _owners().items():
        inherited = {name for base in holder.__mro__[1:] if base in _FACES.values() for name in vars(base)}
        for name, member in inspect.getmembers(holder):
            verb = f"{owner}.{name}"
            known = owner in LEFT_OUT or verb in LEFT_OUT or (name in inherited and name not in vars(holder))
            if is_verb(member) and not name.startswith("_") and not known:
                found.append(verb)
    return tuple(found)


async def _holder(world: World, owner: str, key: SessionKey | None) -> Any:
    """Return what a verb is called on: one of its owners in a world, of a session if it is one's handle."""
    match owner:
        case "sessions" | "runtime":
            return world.runtime
        case "operator":
            return world.runtime.across_tenants()
        case "session":
            return world.runtime.session((key or await world.talk()).session_id)
        case "run":
            return await world.run()
        case "store":
            return world.store
        case _:
            return getattr(world.store, owner.partition(".")[2])


def missing() -> list[str]:
    """Name what has no recipe: verbs, actions, and dataclasses of the model that a commit or a verb takes."""
    lacking = [name for name in verbs() if name not in RECIPES]
    shipped = [name for name, kind in vars(actions).items() if _is_action(kind)]
    return lacking + [name for name in shipped if name not in ACTIONS]


def _is_action(kind: Any) -> bool:
    return is_dataclass(kind) and isinstance(kind, type) and kind.__module__ == actions.__name__


def places() -> list[Place]:
    """Return every row of the matrix."""
    found: list[Place] = []
    for verb in sorted(verbs()):
        found += [Place(f"{verb}.{name}", _argument(verb, name)) for name in _parameters(verb)]
        found.append(Place(verb, _argument(verb, ""), is_whole=True))
    for part in PARTS:
        found += [Place(f"{part.kind.__name__}.{each.name}", _field(part, each.name)) for each in fields(part.kind)]
        found.append(Place(part.kind.__name__, _field(part, ""), is_whole=True))
    for action in sorted(ACTIONS):
        kind = getattr(actions, action)
        found += [Place(f"{action}.{each.name}", _action(action, each.name)) for each in fields(kind)]
        found.append(Place(action, _action(action, ""), is_whole=True))
    return found


def _parameters(verb: str) -> list[str]:
    return [name for name, each in _signature(verb).items() if each.kind is not inspect.Parameter.VAR_KEYWORD]


def _signature(verb: str) -> dict[str, inspect.Parameter]:
    """Return a verb's parameters, all those that its overloads name."""
    owner, _, name = verb.rpartition(".")
    method = getattr(_owners()[owner], name)
    forms = [inspect.signature(each).parameters for each in (*get_overloads(method), method)]
    return {name: each for form in forms for name, each in form.items() if name != "self"}


def _argument(verb: str, name: str) -> Callable[[World, Any], Awaitable[Call]]:
    async def make(world: World, value: Any) -> Call:
        given = await RECIPES[verb](world)
        return await bound(world, verb, given | ({name: value} if name else {}))

    return make


async def bound(world: World, verb: str, given: Arguments) -> Call:
    """Return a call of a verb."""
    owner, _, name = verb.rpartition(".")
    method = getattr(await _holder(world, owner, given.get(OF)), name)
    many = [n for n, each in _signature(verb).items() if each.kind is inspect.Parameter.VAR_POSITIONAL]
    plain = {key: value for key, value in given.items() if key not in many and key != OF}
    if many:
        first = list(plain.values())
        return lambda: method(*first, *(given[key] for key in many))
    return lambda: method(**plain)


def _field(part: Part, name: str) -> Callable[[World, Any], Awaitable[Call]]:
    async def make(world: World, value: Any) -> Call:
        given = await part.given(world)
        made = part.kind(**(given | ({name: value} if name else {})))
        verb, arguments = await part.embed(world, {"messages": made} if part.kind in IN_LOGS else made)
        return await bound(world, verb, arguments)

    return make


def _action(name: str, field: str) -> Callable[[World, Any], Awaitable[Call]]:
    async def make(world: World, value: Any) -> Call:
        given, key = dict(ACTIONS[name]), await world.talk()
        if name == "StopRun":
            key = (await world.running())[0].key
        if name == "RewindSession":
            given["to"] = (await world.store.runs.of_session(key, limit=1))[0].run_id
        if name == "ResumeSession":
            key = await world.made("suspended", lambda: _suspended(world))
        action = getattr(actions, name)(**(given | ({field: value} if field else {})))
        return lambda: world.runtime.execute(key.session_id, action)

    return make


async def _suspended(world: World) -> Any:
    session = await world.runtime.create("echo")
    await session.execute(actions.SuspendSession())
    return SessionKey(session.session_id)
