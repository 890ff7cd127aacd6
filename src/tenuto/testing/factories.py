"""Small builders with telling defaults, so that a test names only what it is about."""

from dataclasses import replace
from itertools import count
from typing import Any

from tenuto.ids import new_id
from tenuto.model.commit import Append, BeginRun, Commit, EndRun, Receipt
from tenuto.model.lane import HostProof, Lane, Owner
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import Key, SessionKey, as_key
from tenuto.store.store import Store

_numbers = count(1)


def an_id(stem: str = "session") -> str:
    """Return an id no other test has."""
    return f"{stem}-{next(_numbers)}"


def a_key(session_id: str | None = None, **parts: Any) -> SessionKey:
    """Return a key no other test has."""
    return SessionKey(session_id or an_id(), **parts)


def an_owner(owner_id: str = "worker-1", incarnation: str = "boot-1", host: HostProof | None = None) -> Owner:
    """Return somebody who takes lanes."""
    return Owner(owner_id=owner_id, incarnation=incarnation, host=host)


def message(text: str, role: str = "user") -> dict[str, str]:
    """Return a chat message."""
    return {"role": role, "content": text}


def a_commit(key: Key, **parts: Any) -> Commit:
    """Return a commit of the id's first life with its own operation id."""
    return replace(Commit(key=as_key(key), operation_id=new_id(), life=1), **parts)


def a_save(key: Key, *items: Any, log: str = "messages", **parts: Any) -> Commit:
    """Return a commit that appends items to a log of the head."""
    return a_commit(key, save=True, logs={log: Append(items=items)} if items else {}, **parts)


def a_turn(key: Key, lane: Lane | None, *items: Any, run_id: str | None = None, **parts: Any) -> Commit:
    """Return a whole turn in one commit: a run that begins, appends to `messages` and completes."""
    run_id = run_id or new_id()
    begin = BeginRun(run_id=run_id, invocation_id=f"inv-{run_id}")
    fixed: dict[str, Any] = {"run": begin, "end": EndRun(status=RunStatus.COMPLETED)}
    if lane:
        fixed |= {"generation": lane.generation, "life": lane.life}
    return a_save(key, *items, **(fixed | parts))


async def a_session(
    store: Store, session_id: str | None = None, *items: Any, **create: Any
) -> tuple[SessionKey, Receipt]:
    """Create a session whose `messages` log has these items; return its key and receipt."""
    key = create.pop("key", None) or a_key(session_id)
    state = {"messages": list(items)} | create.pop("state", {})
    receipt = await store.create(key, state=state, logs={"messages"} | create.pop("logs", set()), **create)
    return key, receipt


async def a_run(store: Store, key: SessionKey, *, lane: Lane | None = None, **begin: Any) -> RunRef:
    """Begin a run, under a lane if one is given."""
    run_id = begin.pop("run_id", None) or an_id("run")
    commit = a_commit(
        key, run=BeginRun(run_id=run_id, invocation_id=begin.pop("invocation_id", f"inv-{run_id}"), **begin)
    )
    if lane:
        commit = replace(commit, generation=lane.generation, life=lane.life)
    await store.commit(commit)
    return RunRef(run_id=run_id)
