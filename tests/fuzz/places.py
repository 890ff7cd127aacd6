"""The rows of the matrix: every argument of every verb, every field of every part, found by introspection."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Any, NamedTuple

from tenuto import SessionRuntime, Store
from tenuto.runtime.change import actions
from tenuto.runtime.handle import SessionHandle
from tenuto.store.open import memory_store
from tests.fuzz.recipes import ACTIONS, IN_LOGS, LEFT_OUT, PARTS, RECIPES, Arguments, Part
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
        *("runtime.create.seed", "runtime.create.title", "runtime.create.metadata", "runtime.create.user_id"),
        *("runtime.create.tags", "runtime.create.expires_at"),
        *("runtime.send.message", "runtime.start.message", "runtime.enqueue.message", "runtime.enqueue.due_at"),
        *("runtime.answer.value", "runtime.settle_effect.result"),
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


def verbs() -> dict[str, Callable[[World], Any]]:
    """Find every public coroutine of the store, its facets, the runtime and a session's handle."""
    store = _store()
    owners: dict[str, tuple[Any, Callable[[World], Any]]] = {
        "store": (store, lambda world: world.store),
        "runtime": (SessionRuntime, lambda world: world.runtime),
        "handle": (SessionHandle, lambda world: world.runtime),
    }
    for name, facet in vars(store).items():
        if not name.startswith("_") and type(facet).__module__.startswith("tenuto.store"):
            owners[f"store.{name}"] = facet, partial(_facet, name)
    found: dict[str, Callable[[World], Any]] = {}
    for owner, (holder, get) in owners.items():
        for name, member in inspect.getmembers(holder):
            is_verb = inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)
            if is_verb and not name.startswith("_") and owner not in LEFT_OUT and f"{owner}.{name}" not in LEFT_OUT:
                found[f"{owner}.{name}"] = partial(_verb, get, name)
    return found


def _facet(name: str, world: World) -> Any:
    return getattr(world.store, name)


def _verb(get: Callable[[World], Any], name: str, world: World) -> Any:
    return getattr(get(world), name)


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
    owner, _, name = verb.rpartition(".")
    holder: Any = {"runtime": SessionRuntime, "handle": SessionHandle, "store": type(_store())}.get(owner)
    if holder is None:
        holder = type(getattr(_store(), owner.partition(".")[2]))
    signature = inspect.signature(getattr(holder, name))
    return {name: each for name, each in signature.parameters.items() if name != "self"}


def _argument(verb: str, name: str) -> Callable[[World, Any], Awaitable[Call]]:
    async def make(world: World, value: Any) -> Call:
        given = await RECIPES[verb](world)
        return await bound(world, verb, given | ({name: value} if name else {}))

    return make


async def bound(world: World, verb: str, given: Arguments) -> Call:
    """Return a call of a verb."""
    owner, _, name = verb.rpartition(".")
    handle = world.runtime.session(await world.talk()) if owner == "handle" else None
    method = verbs_cached()[verb](world) if handle is None else getattr(handle, name)
    many = [n for n, each in _signature(verb).items() if each.kind is inspect.Parameter.VAR_POSITIONAL]
    plain = {key: value for key, value in given.items() if key not in many}
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
        return lambda: world.runtime.execute(key, action)

    return make


async def _suspended(world: World) -> Any:
    session = await world.runtime.create("echo")
    await world.runtime.execute(session.key, actions.SuspendSession())
    return session.key


_CACHE: dict[str, Callable[[World], Any]] = {}


def verbs_cached() -> dict[str, Callable[[World], Any]]:
    """Return the verbs, found once."""
    if not _CACHE:
        _CACHE.update(verbs())
    return _CACHE
