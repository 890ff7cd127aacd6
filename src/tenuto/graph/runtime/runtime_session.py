"""A graph's session under the runtime, which keeps it itself."""

from collections.abc import Iterable, Mapping
from typing import Any

from tenuto.graph.session.own_session import OwnSession
from tenuto.graph.session.session_plan import LoadedSession, SessionPlan
from tenuto.model.session import SessionRecord
from tenuto.runtime.turn.context import TurnContext
from tenuto.writing.changes import Base


class RuntimeSession(OwnSession):
    """A session in the runtime's store, held under its lane; the runtime's copy is what the next turn begins with."""

    def __init__(
        self, plan: SessionPlan, live: TurnContext, loaded: LoadedSession, removed: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(plan, live.key, loaded, removed)
        self._live = live

    @property
    def overwrites(self) -> bool:
        """See `OwnSession.overwrites`: under the lane nobody comes between."""
        return False

    def saved(self, life: int | None, base: Base, state: Any, added: Iterable[Any]) -> None:  # noqa: ARG002 - the runtime keeps the session itself
        """See `OwnSession.saved`."""
        self._values = self.plan.values(state)
        self._removed = frozenset()

    def forget(self) -> None:
        """See `OwnSession.forget`."""
        self._live.replica.projected = None


def project(plan: SessionPlan, live: TurnContext) -> LoadedSession:
    """Return the session a turn begins on as the graph's values; those the turn before validated are reused."""
    copy, base = live.replica, live.writer.base
    stored: dict[str, Any] = {**copy.document, **copy.logs}
    logs = frozenset(copy.logs)
    if copy.schema_version != plan.schema_version:
        copy.projected = None
        record = SessionRecord(
            session_id=live.key.session_id, state=stored, schema_version=copy.schema_version, logs=logs
        )
        return plan.read(live.key, record, base, copy.life)
    plan.check(live.key, stored, logs)
    known: Mapping[str, tuple[Any, int, Any]] = {}
    if copy.projected is not None and copy.projected[0] is plan:  # else they are another graph's values
        known = copy.projected[1]
    held, fresh = {}, {}
    for name in plan.fields.keys() & stored.keys():
        raw = stored[name]
        was, count, value = known.get(name, (None, 0, None))
        if was is not raw or (name in plan.logs and len(value) != count):
            fresh[name] = raw
            continue
        held[name] = value
        if name in plan.logs and count < len(raw):
            fresh[name] = raw[count:]
    valid = plan.valid(live.key, fresh)
    values = {}
    for name, field in plan.fields.items():
        if name in held:
            values[field] = [*held[name], *valid[field]] if name in fresh else held[name]
        elif name in fresh:
            values[field] = valid[field]
    counts = {name: len(stored[name]) for name in plan.logs & stored.keys()}
    kept = {n: (stored[n], counts.get(n, 0), values[f]) for n, f in plan.fields.items() if f in values}
    copy.projected = (plan, kept)
    return LoadedSession(copy.life, base, True, values, counts)
