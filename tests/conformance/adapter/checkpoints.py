"""The specification's checkpoint record, put together from what the store holds, and written into it the other way.

The store has no such record: a checkpoint is a cursor (per frame, the node it stands before), a document and logs whose
names begin with the frame's path, and, of a fan-out under way, a log of the instances that are done. Positions, and
which instances had begun, are no part of it and come from the node events that were seen; `place` is what the store has
of them. In that log, an entry of a fan-out inside an instance says `at` which; none of the fixtures looks at those in a
record that a run left.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tenuto import Store
from tenuto.errors import StoreUnavailable
from tenuto.graph import END, CompiledGraph
from tenuto.graph.engine.graph_plan import GraphPlan
from tenuto.graph.events.node_event import NodeEvent
from tenuto.ids import new_id
from tenuto.model.checkpoint import Checkpoint
from tenuto.model.commit import BeginRun, Commit, EndRun, NewCheckpoint, Receipt, Reset, TakeRun
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import Kind, SessionKey
from tests.conformance.adapter.decisions import Decision
from tests.conformance.adapter.mocks import mock_error
from tests.conformance.adapter.records import Record, Run
from tests.conformance.adapter.seeding import PROGRESS, Path, name_of, seeded_progress, unescaped
from tests.conformance.adapter.vocabulary import DirectiveUnknown, FixtureProblem, known, listing, mapping

KINDS = ("in_memory", "in_memory_batched", "sqlite")
"""What a case may ask for. Every store keeps plain data only, which is what `sqlite` asks for."""
SEEDED = "seeded-record"
CHANGED = "changed-record"


class Crash(BaseException):
    """The process dies here: nothing catches it, nothing is finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """One save, as the specification speaks of it. `progress` is the fan-out under way, and what it has so far.

    `place` is the graph that the store says it stands in, and the step it had reached.
    `initial` is what a run begins with: a record it can be resumed from, but of no completed node, so no save there.
    """

    run: int
    invocation_id: str
    correlation_id: str
    state: dict[str, Any]
    parent_states: list[dict[str, Any]]
    completed_positions: list[dict[str, Any]]
    place: tuple[Path, int]
    progress: tuple[Path, dict[int, dict[str, Any]]] | None
    schema_version: str
    last_saved_at: datetime
    instances: tuple[tuple[str, int], ...]
    initial: bool

    @property
    def of_instance(self) -> bool:
        """Whether instances are done, and not a node: `instances` names them, by node and index."""
        return bool(self.instances)


class Checkpoints:
    """A case's store. Every save that reaches it is read back from it at once and kept; then it may crash."""

    def __init__(self, spec: dict[str, Any], store: Store, record: Record, batch: int = 1) -> None:
        self.store = store
        self.batch = batch
        self.lost = False
        self.saves: list[Save] = []
        self.observer = ""
        self._record = record
        self._commit = store.commit
        self._runs: dict[str, BeginRun] = {}
        self._bases: dict[str, list[dict[str, Any]]] = {}
        self._dead: set[str] = set()
        self._seeded: list[dict[str, Any]] = []
        injection = known(
            spec.get("crash_injection") or {}, ("after_node", "after_fan_out_instance"), "crash_injection"
        )
        self._after_node = injection.get("after_node")
        instance = injection.get("after_fan_out_instance")
        given = known(instance, ("node", "index"), "after_fan_out_instance") if instance else {}
        self._after_instance = (given["node"], given["index"]) if given else None
        store.commit = self._kept  # type: ignore[method-assign]

    @classmethod
    async def open(cls, spec: dict[str, Any], record: Record) -> "Checkpoints":
        """Open the store a case asks for."""
        given = spec["checkpointer"] if isinstance(spec["checkpointer"], dict) else {"kind": spec["checkpointer"]}
        given = known(given, ("kind", "fan_out_internal_save_batching"), "checkpointer")
        if given["kind"] not in KINDS:
            raise DirectiveUnknown(f"checkpointer {given['kind']}")
        batching = known(given.get("fan_out_internal_save_batching") or {}, ("flush_every",), "batching")
        if (given["kind"] == "in_memory_batched") != bool(batching):
            raise FixtureProblem("in_memory_batched must say how many saves are flushed at a time, and no other may")
        return cls(spec, await record.stores.open(), record, batching.get("flush_every", 1))

    async def close(self) -> None:
        """Close the store."""
        await self.store.aclose()

    def of(self, run: Run) -> list[Save]:
        """Return the saves of one run, in order."""
        return [save for save in self.saves if save.run == run.number and not save.initial]

    def newest(self, run: Run) -> Save | None:
        """Return the record that a run is resumed from."""
        mine = [save for save in self.saves if save.run == run.number]
        return mine[-1] if mine else None

    def begun(self) -> BeginRun:
        """Return the run that began last."""
        return next(reversed(self._runs.values()))

    async def _kept(self, commit: Commit) -> Receipt:
        run_id = commit.run.run_id if commit.run else ""
        if run_id in self._dead and not isinstance(commit.run, TakeRun):
            raise Crash  # whoever finds the run later may end it; its own process writes nothing more
        if await self._is_lost(run_id):
            raise StoreUnavailable("the process is gone, and with it what it had not written")
        receipt = await self._commit(commit)
        if isinstance(commit.run, BeginRun):
            self._runs[run_id] = commit.run
            # A resumed run goes on from the positions of the run before it, or of the record the fixture wrote.
            earlier = self.saves[-1].completed_positions if self.saves else self._seeded
            self._bases[run_id] = earlier if commit.run.origin_id else []
        if commit.checkpoint is not None and run_id in self._runs:
            point = await self.store.checkpoints.get(commit.key, receipt.commit_number)
            assert point is not None
            await self._save(point, commit)
        return receipt

    async def _is_lost(self, run_id: str) -> bool:
        """Tell whether the first run has failed with saves in its buffer, in a fixture that wants them lost."""
        if Decision.A_FAILED_RUN_FLUSHES_ITS_BUFFER not in self._record.decisions:
            return False
        if self.batch == 1 or self._record.run_number != 0 or run_id not in self._runs:
            return False
        assert self._record.graph is not None
        invocation_id = self._runs[run_id].invocation_id
        await self._record.graph.drain_events_for(invocation_id)
        self.lost = self.lost or any(event.error is not None for event in self._events(invocation_id))
        return self.lost

    async def _save(self, point: Checkpoint, commit: Commit) -> None:
        begun = self._runs[str(point.run_id)]
        graph = self._record.graph
        assert graph is not None
        # What was emitted before the save is delivered first, so that the positions are those of this moment.
        await graph.drain_events_for(begun.invocation_id)
        logs = {
            name: [entry.value for entry in await self.store.logs.read(point.key, name, end=end)]
            for name, end in point.ends.items()
        }
        cursor = mapping(point.cursor, "a cursor")
        states = [_fields(tuple(frame["path"]), {**point.document, **logs}) for frame in cursor["frames"]]
        underway = _progress(cursor["underway"], logs) if cursor["underway"] else None
        after = bool(cursor["frames"][-1].get("after"))
        ran = [position(event) for event in completed(self._events(begun.invocation_id), self._record, suspended=after)]
        save = Save(
            run=self._record.run_number,
            invocation_id=begun.invocation_id,
            correlation_id=str(begun.correlation_id),
            state=states[-1],
            parent_states=states[:-1],
            completed_positions=self._bases[str(point.run_id)] + ran,
            place=(tuple(cursor["frames"][-1]["path"]), cursor["step"]),
            progress=underway,
            schema_version=point.schema_version,
            last_saved_at=point.created_at,
            instances=_done_in(commit),
            initial=isinstance(commit.run, BeginRun) and commit.end is None,
        )
        self.saves.append(save)
        self._interrupt(save, str(point.run_id))

    def _events(self, invocation_id: str) -> list[NodeEvent]:
        """Return what was seen of the run that is under way; an invocation that was suspended has others before it."""
        own = self._record.deliveries[self._record.runs[-1].delivered :]
        return [e for name, e in own if name == self.observer and e.scope.invocation_id == invocation_id]

    def _interrupt(self, save: Save, run_id: str) -> None:
        """End the first run here, if this is the boundary after which it is to end."""
        if self._record.run_number != 0 or save.initial:
            return
        if not save.of_instance:
            last = save.completed_positions[-1]["node_name"] if save.completed_positions else None
            if self._after_node is not None and last == self._after_node:
                self._dead.add(run_id)
                raise Crash
            return
        if self._after_instance in save.instances:
            self._dead.add(run_id)
            raise Crash
        for node, index in save.instances:
            if (node, index) in self._record.structure.aborts.items():
                raise mock_error(f"aborted after instance {index}")

    async def seed(self, spec: Any, graph: CompiledGraph[Any]) -> str:
        """Write the checkpoint that a `seeded_record` describes; return the invocation it is filed under."""
        keys = ("state", "completed_positions", "schema_version", "parent_states", "fan_out_progress")
        given = known(spec, keys, "seeded_record")
        states = [*listing(given.get("parent_states", []), "parent_states"), mapping(given["state"], "seeded state")]
        positions = listing(given["completed_positions"], "completed_positions")
        self._seeded = positions
        at = tuple(positions[-1]["namespace"]) if positions else ()
        if len(states) != len(at) + 1:
            raise FixtureProblem(f"seeded_record has {len(states)} states for a place {len(at)} graphs deep")
        frames = []
        stored: dict[str, Any] = {}
        logs: dict[str, Reset] = {}
        owner: GraphPlan[Any] = graph
        for depth, state in enumerate(states):
            path = at[:depth]
            if depth:
                (owner,) = owner.nodes[path[-1]].graphs()
            node = at[depth] if depth < len(at) else _following(owner, positions)
            frames.append({"path": list(path), "node": node})
            for name, value in mapping(state, "a seeded state").items():
                column = owner.schema.fields.get(name)
                if column is not None and column.reducer.is_log:
                    logs[name_of(path, name)] = Reset(items=tuple(value))
                else:
                    stored[name_of(path, name)] = value
        underway = None
        for name, items in seeded_progress(given.get("fan_out_progress") or [], self._record).items():
            underway, logs[name] = name, Reset(items=tuple(items))
        step = max((each["step"] for each in positions), default=-1)
        point = NewCheckpoint(
            step=max(step, 0),
            cursor={"frames": frames, "step": step, "underway": underway},
            document=stored,
            schema_version=str(given.get("schema_version", graph.kind.schema_version)),
        )
        await self._file(SEEDED, f"{SEEDED}-correlation", point, logs)
        return SEEDED

    async def changed(self, run: Run, fields: Any) -> str:
        """File a run's newest checkpoint once more, with other values in these fields; return under which invocation.

        A field is the innermost graph's that stands in the checkpoint, or that of a graph around it.
        """
        runs = await self.store.runs.of_invocation(str(run.invocation_id))
        found = await self.store.checkpoints.latest(runs[-1].key, run_id=runs[-1].run_id) if runs else None
        if found is None:
            raise FixtureProblem("the first run left no checkpoint to change")
        logs = {
            name: Reset(items=tuple(entry.value for entry in await self.store.logs.read(found.key, name, end=end)))
            for name, end in found.ends.items()
        }
        document = dict(found.document)
        cursor = mapping(found.cursor, "a cursor")
        for name, value in mapping(fields, "resume_with_modified_items").items():
            names = [name_of(tuple(frame["path"]), name) for frame in reversed(cursor["frames"])]
            stored = next((each for each in names if each in document or each in logs), None)
            if stored is None:
                raise FixtureProblem(f"resume_with_modified_items: there is no field {name} in the checkpoint")
            if stored in logs:
                logs[stored] = Reset(items=tuple(listing(value, name)))
            else:
                document[stored] = value
        point = NewCheckpoint(
            step=found.step, cursor=found.cursor, document=document, schema_version=found.schema_version
        )
        await self._file(CHANGED, str(run.correlation_id), point, logs)
        return CHANGED

    async def _file(self, name: str, correlation_id: str, point: NewCheckpoint, logs: dict[str, Reset]) -> None:
        """Write a checkpoint as that of a run that failed, under an invocation of this name."""
        key, run = SessionKey(name, kind=Kind.INVOCATION), RunRef(run_id=new_id())
        begin = BeginRun(run_id=run.run_id, invocation_id=name, correlation_id=correlation_id)
        failed = EndRun(status=RunStatus.FAILED)
        life = await self.store.life(key)
        await self._commit(Commit(key=key, operation_id=new_id(), life=life, run=begin))
        await self._commit(Commit(key=key, operation_id=new_id(), life=life, run=run, logs=logs, checkpoint=point))
        await self._commit(Commit(key=key, operation_id=new_id(), life=life, run=run, end=failed))


def _done_in(commit: Commit) -> tuple[tuple[str, int], ...]:
    """Return the instances that a commit says are done, by node and index."""
    found = []
    for name, write in commit.logs.items():
        *path, last = name.split("/")
        if last == PROGRESS:
            done = [mapping(item, "an entry") for item in write.items]
            found += [(str((e.get("at") or [path[-1], 0])[-2]), int(e["index"])) for e in done if "index" in e]
    return tuple(found)


def position(event: NodeEvent) -> dict[str, Any]:
    """Return a completed event as a saved position: there the namespace is without the node's own name."""
    return {
        "namespace": list(event.namespace[:-1]),
        "node_name": event.node_name,
        "step": event.step,
        "attempt_index": event.attempt_index,
    }


def completed(events: list[NodeEvent], record: Record, *, suspended: bool = False) -> list[NodeEvent]:
    """Return the events with which nodes outside of instances and branches were done, or with which one suspended."""
    phases = ("completed", "suspended") if suspended else ("completed",)
    ended = [event for event in events if event.phase in phases and event.error is None]
    return [event for event in ended if not record.structure.is_inner(event)]


def _following(graph: GraphPlan[Any], positions: list[dict[str, Any]]) -> str | None:
    """Return the node after the last completed position; None at the end."""
    if not positions:
        return graph.entry
    edge = graph.edges[positions[-1]["node_name"]]
    if callable(edge):
        raise FixtureProblem("a seeded record after a conditional edge does not say where it leads")
    return None if edge is END else str(edge)


def _progress(name: str, logs: dict[str, list[Any]]) -> tuple[Path, dict[int, dict[str, Any]]]:
    *steps, last = name.split("/")
    assert last == PROGRESS
    outermost = [item for item in logs[name] if "at" not in item]
    return tuple(map(unescaped, steps)), {item["index"]: item for item in outermost}


def _fields(path: Path, stored: dict[str, Any]) -> dict[str, Any]:
    """Return a frame's fields; those of the outermost that a session keeps have the session's names, without a path."""
    prefix = name_of(path, "")
    own = {name.removeprefix(prefix): value for name, value in stored.items() if name.startswith(prefix)}
    of_session = {} if path else {name: value for name, value in stored.items() if "/" not in name}
    return {name: value for name, value in own.items() if "/" not in name and name != PROGRESS} | of_session
