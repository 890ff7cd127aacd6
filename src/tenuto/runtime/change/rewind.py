"""Rewinds: a session becomes what it was at a checkpoint, without copying or losing later entries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from tenuto.codec import JSON, encode
from tenuto.model.checkpoint import Checkpoint
from tenuto.runtime.change.fork import point_before
from tenuto.runtime.session.session_view import KeptLog, SessionView
from tenuto.runtime.turn.pending_changes import Pending
from tenuto.runtime.turn.replica import Replica
from tenuto.store.store import Store

_NOTHING: Any = object()


@dataclass(frozen=True, slots=True)
class GoBack:
    """The action that rewinds a session to a checkpoint; its logs continue from there on new branches."""

    point: Checkpoint
    logs: Mapping[str, Sequence[JSON]]

    async def apply(self, session: SessionView) -> SessionView:
        """See `Action.apply`."""
        now, then = session.document, own_fields(self.point)
        document = {name: _same(now.get(name, _NOTHING), value) for name, value in then.items()}
        return replace(
            session,
            document=MappingProxyType(document),
            logs=MappingProxyType(dict(self.logs)),
            schema_version=self.point.schema_version,
        )


async def going_back(store: Store, replica: Replica, to: str | int) -> GoBack:
    """Return the action that rewinds a session to before a run, or to a checkpoint's commit."""
    point = await point_before(store, replica.key, to)
    return GoBack(point, await logs_at(store, replica, point))


async def logs_at(store: Store, replica: Replica, point: Checkpoint) -> dict[str, Sequence[Any]]:
    """Return a session's logs as they were at a checkpoint; logs that did not exist then are empty.

    A log that only grew since is cut from the replica; one that was rewritten since is read from the store.
    """
    logs: dict[str, Sequence[Any]] = {name: [] for name in replica.logs}
    for name, end in point.ends.items():
        now = replica.ends.get(name)
        if "/" in name:
            continue  # belongs to a run alone
        if now is not None and now[:2] == end[:2] and end.position <= now.position:
            logs[name] = replica.logs[name][: end.position]
        else:
            entries = await store.logs.read(replica.key, name, end=end)
            logs[name] = KeptLog((entry.value for entry in entries), end)
    return logs


async def rewind(store: Store, pending: Pending, point: Checkpoint) -> None:
    """Rewind a turn's session to a checkpoint, as part of the turn's next commit."""
    replica, document = pending.replica, own_fields(point)
    pending.document |= {n: v for n, v in document.items() if _same(replica.document.get(n, _NOTHING), v) is v}
    pending.removed |= replica.document.keys() - document.keys()
    replica.document, replica.schema_version = dict(document), point.schema_version
    for name, items in (await logs_at(store, replica, point)).items():
        if isinstance(items, KeptLog):
            pending.reset_log(name, items, len(items), items.end)
        elif len(items) != len(replica.logs[name]):
            pending.reset_log(name, items, len(items))


def own_fields(point: Checkpoint) -> dict[str, JSON]:
    """Return the session's own fields at a checkpoint, without those that belong to a run."""
    return {name: value for name, value in point.document.items() if "/" not in name}


def _same(found: JSON, value: JSON) -> JSON:
    """Return `found` if it is the same as `value`; texts are compared too, since 1 and True are equal but differ."""
    return found if found is not _NOTHING and found == value and encode(found) == encode(value) else value
