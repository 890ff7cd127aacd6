"""Where the frames of a stored run resume, and how that is changed before they do."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tenuto.graph.checkpoint.ledger import Ledger, Path
from tenuto.graph.session.session_plan import LoadedSession, SessionPlan
from tenuto.graph.state import Schema, rebuilt
from tenuto.model.session import Ends
from tenuto.writing.changes import Base


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """Where a frame resumes: its state, and the node that comes next (None: the end), or that it left (`after`)."""

    state: Any
    node: str | None
    after: bool
    schema: Schema


class ResumePoints:
    """The resume points of a run's frames, by their paths; empty for a new run. What is changed is written next."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._points: dict[Path, ResumePoint] = {}
        self._rebased: Ends | None = None

    def __bool__(self) -> bool:
        return bool(self._points)

    def add(self, path: Path, point: ResumePoint) -> None:
        """Let a frame resume here."""
        self._points[path] = point

    def ends(self) -> tuple[Path, Path]:
        """Return the paths of the outermost and the innermost frame."""
        return min(self._points, key=len), max(self._points, key=len)

    def at(self, path: Path) -> ResumePoint:
        """Return where a frame resumes."""
        return self._points[path]

    def entry(self) -> Any:
        """Return the outermost state a stored run resumes with; None for a new run."""
        point = self._points.get(())
        return point.state if point else None

    def pop(self, path: Path) -> ResumePoint | None:
        """Return, once, where a frame resumes."""
        return self._points.pop(path, None)

    def replace(self, path: Path, state: Any, names: Iterable[str]) -> None:
        """Replace a stored state by one that differs from it in these fields."""
        point = self._points[path]
        self._points[path] = replace(point, state=state)
        self._ledger.restore(path, point.schema, state, frozenset(names))

    def rebase(self, plan: SessionPlan, loaded: LoadedSession, base: Base) -> None:
        """Base a stored run on the current session; what the run itself had added is added again."""
        point = self._points[()]
        values = dict(loaded.values)
        for name in plan.logs:
            field = plan.fields[name]
            begins = base.ends[name].position if name in base.ends else 0
            self._ledger.rewrites.pop(name, None)
            if own := point.state.__dict__[field][begins:]:
                values[field] = [*values.get(field, []), *own]
            if loaded.rewrite is not None:
                self._ledger.rewrites[name] = (0, None)
        state = rebuilt(point.state, {**point.state.__dict__, **values})
        self.replace((), state, [name for name in values if not point.schema.fields[name].reducer.is_log])
        self._rebased = loaded.base.ends

    def overwrite(self, plan: SessionPlan, names: Iterable[str]) -> None:
        """Write these logs whole: others wrote to them after the stored run began."""
        self.replace((), self._points[()].state, [plan.fields[name] for name in plan.logs & set(names)])

    def begins_at(self, ends: Ends) -> Ends:
        """Return the log ends at which a run resumed from a checkpoint begins."""
        if self._rebased is None:
            return ends
        return {**{name: end for name, end in ends.items() if "/" in name}, **self._rebased}
