"""Putting up again the frames of a run that is stored."""

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from tenuto.errors import CheckpointRecordInvalid
from tenuto.graph.checkpoint.cursor import ResumePoint
from tenuto.graph.checkpoint.fan_out_progress import FanOutProgress
from tenuto.graph.checkpoint.graph_journal import PROGRESS, GraphJournal, session_note
from tenuto.graph.checkpoint.ledger import Path, log_name
from tenuto.graph.checkpoint.stored_run import StoredRun

if TYPE_CHECKING:
    from tenuto.graph.compiled import CompiledGraph


def restore(found: StoredRun, graph: "CompiledGraph[Any]") -> GraphJournal:
    """Put together the points at which the frames of a stored run go on, migrated and validated."""
    if "frames" not in found.checkpoint.cursor:
        raise _misfit(f"The last checkpoint of {found.checkpoint.key} is not of a graph.")
    cursor, note, plan = found.checkpoint.cursor, found.checkpoint.cursor.get("session"), graph.session
    if note is not None and (plan is None or plan.own is None):
        raise _misfit(f"The run belongs to {found.checkpoint.key}, but the graph keeps no sessions in that store.")
    version = found.checkpoint.schema_version if note is None else note["state_version"]
    underway = cursor["underway"]
    progress = FanOutProgress.found(graph.fan_out_batch, underway, found.logs.get(underway, ()))
    journal = GraphJournal(
        None,
        graph.kind.schema_version,
        progress,
        step=cursor["step"],
        every_node=graph.store is not None,
        graph=graph.name,
    )
    if note is not None and plan is not None:
        journal.ledger.names = plan.names
    graphs: list[tuple[Path, CompiledGraph[Any], dict[str, Any]]] = []
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
            raise _missing(cursor, owner, graph, f"node {node!r}, where the run would go on", version)
        graphs.append((path, owner, entry))
    raw = [_values(found, path, note) for path, _, _ in graphs]
    migrated = graph.migrations.apply(version, graph.kind.schema_version, raw)
    for (path, owner, entry), values in zip(graphs, migrated, strict=True):
        try:
            state = owner.kind.model_validate(values)
        except ValidationError as error:
            raise _misfit(f"The stored state does not fit {owner.kind.__name__}: {error}") from error
        stop = ResumePoint(state=state, node=entry["node"], after=entry.get("after", False), schema=owner.schema)
        journal.stops.add(path, stop)
    renamed = note is not None and plan is not None and note != session_note(plan, version)
    if version == graph.kind.schema_version and not renamed:
        journal.ledger.document = dict(found.checkpoint.document)
    else:
        # From the next checkpoint on, everything is kept under the new version, logs that were written before too.
        for path, owner, _ in graphs:
            journal.ledger.rewrite(path, owner.schema, journal.stops.at(path).state)
    journal.beside = {"session_id": cursor["session_id"]} if cursor.get("session_id") else {}
    journal.go_on(cursor["frames"])
    return journal


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
    cursor: Any, owner: "CompiledGraph[Any]", graph: "CompiledGraph[Any]", what: str, version: str
) -> CheckpointRecordInvalid:
    """Say that a node is gone, with what was there when the checkpoint was written and what is here now."""
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
    return CheckpointRecordInvalid(f"{message} Deploy the graph that wrote the checkpoint, or start anew.", **details)
