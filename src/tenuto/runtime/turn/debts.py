"""Abandoning what a run waits for: its waits are settled, its children stopped, and a parent that waits is notified."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tenuto.codec import JSON
from tenuto.model.commit import SettleWait
from tenuto.model.outgoing_item import NewOutgoing, OutboxKind
from tenuto.model.run import Run
from tenuto.model.session import SessionKey
from tenuto.model.wait import Wait, WaitKind, WaitStatus
from tenuto.runtime.turn.invocation import start_of
from tenuto.store.store import Store


class Abandoned(NamedTuple):
    """The commit parts that abandon waits: their settlements, and outgoing items for other sessions."""

    settled: list[SettleWait]
    owed: list[NewOutgoing]


def abandon_waits(waits: Iterable[Wait], tenant: str, status: WaitStatus = WaitStatus.ABANDONED) -> Abandoned:
    """Return the commit parts that settle the open waits among these; children that are waited for are stopped."""
    found = Abandoned([], [])
    for wait in waits:
        if wait.status is not WaitStatus.OPEN:
            continue
        found.settled.append(SettleWait(wait_id=wait.wait_id, status=status))
        if wait.kind == WaitKind.CHILD:
            target = SessionKey(str(wait.metadata["child"]), tenant=tenant)
            found.owed.append(NewOutgoing(kind=OutboxKind.STOP, target=target, body={"token": wait.metadata["token"]}))
    return found


async def abandon_run(store: Store, run: Run, waits: Iterable[Wait]) -> Abandoned:
    """Return the commit parts that abandon a suspended run with these waits; a parent that waits for it is notified."""
    found = abandon_waits(waits, run.key.tenant)
    error = {"category": "child_abandoned", "message": "The child received a new message and abandoned this request."}
    answer = result_for_parent((await start_of(store, run)).reply_to, run.key, status="abandoned", error=error)
    if answer is not None:
        found.owed.append(answer)
    return found


def result_for_parent(
    asker: Any, key: SessionKey, *, status: str, output: JSON = None, text: str = "", error: JSON = None
) -> NewOutgoing | None:
    """Return the outcome of a child's turn, for the parent that waits for it; None if no parent does."""
    if not isinstance(asker, Mapping):
        return None
    target = SessionKey(str(asker["parent"]), tenant=key.tenant)
    body = {"token": asker["token"], "child": key.session_id, "status": status}
    body |= {"result": output, "text": text} if error is None else {"error": error}
    return NewOutgoing(kind=OutboxKind.RESULT, target=target, body=body)


def news_for_root(key: SessionKey, root: str | None, run_id: str) -> list[NewOutgoing]:
    """Return what informs the root of a session's tree that one of its runs waits for something."""
    if root is None or root == key.session_id:
        return []
    target = SessionKey(root, tenant=key.tenant)
    return [NewOutgoing(kind=OutboxKind.WAITS, target=target, body={"run_id": run_id})]


def token_of(body: JSON) -> str | None:
    """Return the token of the parent's wait for the turn that this input begins; None if there is none."""
    origin: Any = body.get("for") if isinstance(body, Mapping) else None
    return origin["token"] if isinstance(origin, Mapping) else None


def notice_body(text: str, data: JSON, **about: JSON) -> dict[str, JSON]:
    """Return the body of a wake that reports something to the model, once.

    The text is a fixed sentence of the runtime; values from outside are only in `data`.
    """
    return {"notice": {"text": text, **about, "data": data}}
