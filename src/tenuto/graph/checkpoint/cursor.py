"""Where the frames of a stored run go on, and how that is changed before they do."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tenuto.graph.checkpoint.ledger import Ledger, Path
from tenuto.graph.session.session_plan import Loaded, SessionPlan
from tenuto.graph.state import Schema, rebuilt
from tenuto.model.session import Ends
from tenuto.writing.changes import Base, LogChange


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """Where a frame goes on: its state, and the node that comes next (None: the end), or was left (`after`)."""

    state: Any
    node: str | None
    after: bool
    schema: Schema


class ResumePoints:
    """The stops of a run's frames, by their paths; empty for a run that begins. What is changed is written next."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._stops: dict[Path, ResumePoint] = {}
        self._rebased: Ends | None = None

    def __bool__(self) -> bool:
        return bool(self._stops)

    def add(self, path: Path, stop: ResumePoint) -> None:
        """Let a frame go on here."""
        self._stops[path] = stop

    def ends(self) -> tuple[Path, Path]:
        """Return the paths of the outermost and the innermost frame."""
        return min(self._stops, key=len), max(self._stops, key=len)

    def at(self, path: Path) -> ResumePoint:
        """Return where a frame goes on."""
        return self._stops[path]

    def entry(self) -> Any:
        """Return the outermost state a stored run goes on with; None for a new run."""
        point = self._stops.get(())
        return point.state if point else None

    def take(self, path: Path) -> ResumePoint | None:
        """Return, once, where a frame is to go on."""
        return self._stops.pop(path, None)

    def replace(self, path: Path, state: Any, names: Iterable[str]) -> None:
        """Put a state in the place of a stored one, from which it differs in these fields."""
        point = self._stops[path]
        self._stops[path] = replace(point, state=state)
        self._ledger.rewrite(path, point.schema, state, names)

    def rebase(self, plan: SessionPlan, loaded: Loaded, base: Base) -> None:
        """Put the session as it is now under a stored run; what the run itself had added is added again."""
        point = self._stops[()]
        values = dict(loaded.values)
        for name in plan.logs:
            field = plan.fields[name]
            begins = base.ends[name].position if name in base.ends else 0
            own = point.state.__dict__[field][begins:]
            self._ledger.pending.pop(name, None)
            if own:
                self._ledger.pending[name] = LogChange(items=point.schema.fields[field].dump(own))
                values[field] = [*values.get(field, []), *own]
            if loaded.rewrite is not None:
                items = point.schema.fields[field].dump(values.get(field, []))
                self._ledger.pending[name] = LogChange(items=items, anew=True)
        state = rebuilt(point.state, {**point.state.__dict__, **values})
        self.replace((), state, [name for name in values if not point.schema.fields[name].reducer.is_log])
        self._rebased = loaded.base.ends

    def insist(self, plan: SessionPlan, names: Iterable[str]) -> None:
        """Write these logs whole: others wrote to them, of which the stored run knows nothing."""
        point = self._stops[()]
        self._ledger.rewrite((), point.schema, point.state, [plan.fields[name] for name in plan.logs & set(names)])

    def begins_at(self, ends: Ends) -> Ends:
        """Return the log ends a run that goes on from a checkpoint begins at."""
        if self._rebased is None:
            return ends
        return {**{name: end for name, end in ends.items() if "/" in name}, **self._rebased}
