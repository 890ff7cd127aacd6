"""Restoring the frames of a stored run."""

from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from tenuto.errors import CheckpointRecordInvalid
from tenuto.graph.checkpoint.cursor import ResumePoint, ResumePoints
from tenuto.graph.checkpoint.fan_out_progress import FanOutProgress
from tenuto.graph.checkpoint.graph_journal import PROGRESS, GraphJournal
from tenuto.graph.checkpoint.journal_writer import JournalWriter
from tenuto.graph.checkpoint.ledger import Ledger, Path, log_name
from tenuto.graph.checkpoint.stored_run import StoredRun
from tenuto.graph.engine.graph_plan import GraphPlan
from tenuto.graph.invocation.opened_run import fresh_journal
from tenuto.graph.session.foreign_session import ForeignSession
from tenuto.graph.session.own_session import OwnSession


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredRun:
    """The frames of a stored run, migrated and validated: where each resumes, and what of them is stored already."""

    graph: GraphPlan[Any]
    cursor: Any
    ledger: Ledger
    points: ResumePoints
    progress: FanOutProgress

    def journal(self, writer: JournalWriter, session: OwnSession | ForeignSession | None) -> GraphJournal:
        """Return the journal of the run that resumes it."""
        named = self.cursor.get("session_id")
        return replace(
            fresh_journal(self.graph, writer, session, {"session_id": named} if named else None),
            progress=self.progress,
            ledger=self.ledger,
            points=self.points,
            step=self.cursor["step"],
            cursor={"frames": self.cursor["frames"]},
        )


def restore(found: StoredRun, graph: GraphPlan[Any]) -> RestoredRun:
    """Restore the frames of a stored run; a checkpoint that does not fit the graph is refused."""
    if "frames" not in found.checkpoint.cursor:
        raise _misfit(f"The last checkpoint of {found.checkpoint.key} is not of a graph.")
    cursor, note, plan = found.checkpoint.cursor, found.checkpoint.cursor.get("session"), graph.session
    if note is not None and (plan.own is None):
        raise _misfit(f"The run belongs to {found.checkpoint.key}, but the graph keeps no sessions in that store.")
    current = graph.kind.schema_version
    version = found.checkpoint.schema_version if note is None else note["state_version"]
    graphs = _graphs_of(cursor, graph, version)
    raw = [_values(found, path, note) for path, _, _ in graphs]
    own = plan if note is not None else None
    fits = version == current and (own is None or note == own.note(version))
    ledger = Ledger(own.names if own else {}, dict(found.checkpoint.document) if fits else {})
    points = ResumePoints(ledger)
    for (path, owner, entry), values in zip(graphs, graph.migrations.apply(version, current, raw), strict=True):
        try:
            state = owner.kind.model_validate(values)
        except ValidationError as error:
            raise _misfit(f"The stored state does not fit {owner.kind.__name__}: {error}") from error
        after = entry.get("after", False)
        points.add(path, ResumePoint(state=state, node=entry["node"], after=after, schema=owner.schema))
        # From the next checkpoint on, everything is kept under this version, logs that were written before too; so is a
        # log that is read as more or fewer entries than are stored, whose positions would not match.
        changed = [
            name
            for name, column in owner.schema.fields.items()
            if not fits
            or (column.reducer.is_log and len(state.__dict__[name]) != len(found.logs.get(ledger.name(path, name), ())))
        ]
        ledger.restore(path, owner.schema, state, changed)
    underway = cursor["underway"]
    progress = FanOutProgress.restored(graph.fan_out_batch, underway, found.logs.get(underway, ()))
    return RestoredRun(graph=graph, cursor=cursor, ledger=ledger, points=points, progress=progress)


def _graphs_of(cursor: Any, graph: GraphPlan[Any], version: str) -> list[tuple[Path, GraphPlan[Any], dict[str, Any]]]:
    """Return the path, the graph and the cursor's entry of each frame."""
    graphs: list[tuple[Path, GraphPlan[Any], dict[str, Any]]] = []
    owner = graph
    for entry in cursor["frames"]:
        path, node = tuple(entry["path"]), entry["node"]
        if path:
            inner = owner.nodes.get(path[-1])
            within = inner.graphs() if inner else []
            if len(within) != 1:
                raise _missing(cursor, owner, graph, f"subgraph node {path[-1]!r}", version)
            owner = within[0]
        if node is not None and node not in owner.nodes:
            raise _missing(cursor, owner, graph, f"node {node!r}, where the run would resume", version)
        graphs.append((path, owner, entry))
    return graphs


def _values(found: StoredRun, path: Path, note: dict[str, Any] | None) -> dict[str, Any]:
    """Return the stored fields of one frame, logs among them, by the state's names."""
    prefix = log_name(path, "")
    stored = {**found.checkpoint.document, **found.logs}
    inner = {name: name.removeprefix(prefix) for name in stored if name.startswith(prefix)}
    values = {own: stored[name] for name, own in inner.items() if "/" not in own and own != PROGRESS}
    if not path and note is not None:
        names = [name for name in found.checkpoint.document if "/" not in name]
        # A log that nothing was ever added to is not in the store, but migrations expect it.
        values |= {note["mapping"].get(name, name): stored.get(name, []) for name in (*names, *note["logs"])}
    return values


def _missing(
    cursor: Any, owner: GraphPlan[Any], graph: GraphPlan[Any], what: str, version: str
) -> CheckpointRecordInvalid:
    """Return the error of a node that is missing, with the versions the checkpoint and the graph have."""
    now = graph.kind.schema_version
    wrote = cursor.get("program") or cursor.get("graph") or None
    by = f" by {wrote!r}" if wrote else ""
    return _misfit(
        f"The graph {owner.name!r} (state version {now!r}) has no {what}; the checkpoint was written{by} under state "
        f"version {version!r}.",
        graph=owner.name,
        stored_version=version,
        current_version=now,
        stored_by=wrote,
    )


def _misfit(message: str, **details: Any) -> CheckpointRecordInvalid:
    return CheckpointRecordInvalid(f"{message} Deploy the graph that wrote the checkpoint, or start over.", **details)
