"""A compiled graph as a program of the runtime: a turn is one run of the graph on the session.

The commit that begins the turn has added the message to the input log; the graph starts from that head. Its checkpoints
are commits of the turn, and its result is written by the commit with which the runtime ends the turn. After a
suspension, a stop, a failure or a lost runner, the run resumes from its last checkpoint.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Generic

from pydantic import ValidationError
from typing_extensions import TypeVar

from tenuto.codec import JSON, dumps
from tenuto.errors import InvalidInput, MessageRefused, SuspensionResumePayloadInvalid, TenutoError
from tenuto.graph.checkpoint.graph_journal import GraphJournal
from tenuto.graph.checkpoint.stored_run import StoredRun, stored_run
from tenuto.graph.engine.graph_plan import GraphPlan
from tenuto.graph.engine.scope import Scope
from tenuto.graph.events.event_queue import Observer, subscription
from tenuto.graph.events.update_stream import Updates, delta_of
from tenuto.graph.invocation import execution
from tenuto.graph.invocation.graph_resume import faults, overlay
from tenuto.graph.invocation.opened_run import OpenedRun, fresh_journal
from tenuto.graph.invocation.restore import RestoredRun, restore
from tenuto.graph.invocation.run_request import RunRequest
from tenuto.graph.runtime.pause_answer import resume_pause
from tenuto.graph.runtime.runtime_session import RuntimeSession, project
from tenuto.graph.runtime.runtime_writer import RuntimeWriter
from tenuto.graph.session.session_plan import LoadedSession, SessionPlan
from tenuto.model.checkpoint import Checkpoint
from tenuto.model.run import Run, RunStatus
from tenuto.model.session import LogEnd
from tenuto.model.wait import Wait, WaitKind
from tenuto.plain_data import common
from tenuto.runtime.program.program_name import accepted_versions, version_text
from tenuto.runtime.program.tool import Tool, child_tool
from tenuto.runtime.program.turn import Turn, context_of
from tenuto.runtime.session.outcome import Outcome
from tenuto.runtime.session.session_view import MESSAGES
from tenuto.runtime.session.traits import ProgramTraits
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.invocation import TurnStopped, TurnSuspended
from tenuto.runtime.turn.invocation_waits import answer_of
from tenuto.store.store import Store
from tenuto.words import Seconds
from tenuto.writing.changes import Base, LogChange

R = TypeVar("R", covariant=True, default=JSON)
"""What a turn's outcome has as its output."""

Output = Callable[[Any], JSON]
Entry = Callable[[Any], JSON]


class GraphProgram(Generic[R]):
    """Runs a graph in turns of the runtime; made by `CompiledGraph.as_program`, which knows the type of its output."""

    def __init__(
        self,
        graph: GraphPlan[Any],
        *,
        name: str,
        version: str | int,
        accepts: Iterable[str | int] = (),
        input_log: str,
        message_logs: Iterable[str] | None,
        entry: Entry | None,
        output: str | Output | None,
        checkpoints: bool,
        step_limit: int,
        updates: bool,
    ) -> None:
        if not name:
            raise InvalidInput("A program needs a name and a version.")
        self.name = name
        self.version = version_text(version)
        self.accepts = accepted_versions(accepts)
        self.graph = graph
        self._plan = _plan_of(graph)
        self._checkpoints = checkpoints
        self._step_limit = step_limit
        self._updates = updates
        self._read_message = entry
        self._output = _output_of(graph, output)
        self._bound: tuple[Store, GraphPlan[Any]] | None = None
        if input_log not in self._plan.logs:
            known = ", ".join(sorted(self._plan.logs)) or "none"
            raise InvalidInput(
                f"Messages cannot be added to {input_log!r}: it is not a log of the sessions of graph {graph.name!r}. "
                f"Name a session field that only grows: {known}.",
                input=input_log,
            )
        self.declares = ProgramTraits(
            input_log=input_log,
            message_logs=self._message_logs(message_logs),
            logs=self._plan.logs,
            schema_version=self._plan.schema_version,
            entry=self._entry,
            reads=self._reads,
            first_document=dict,
            resumes=True,
        )

    def _message_logs(self, given: Iterable[str] | None) -> frozenset[str]:
        """Return which logs are conversations: those the caller names, or `messages`, if messages fit there."""
        if given is not None:
            logs = frozenset(given)
            if not logs <= self._plan.logs & {MESSAGES}:
                raise InvalidInput(f"Only a log {MESSAGES!r} of the session can be a conversation.", logs=sorted(logs))
            return logs
        if MESSAGES not in self._plan.logs:
            return frozenset()
        try:
            kept = self._kept(MESSAGES, {"role": "user", "content": "?"})
        except ValidationError:
            return frozenset()
        return frozenset({MESSAGES} if isinstance(kept, Mapping) and kept.get("role") == "user" else ())

    def _entry(self, message: JSON) -> JSON:
        try:
            given = message if self._read_message is None else self._read_message(message)
            return self._kept(self.declares.input_log, given)
        except Exception as error:
            raise MessageRefused(
                f"The message does not fit {self.declares.input_log!r} of {self.graph.kind.__name__}: {error}"
            ) from error

    def _reads(self, version: str) -> None:
        if version != self._plan.schema_version:
            self._plan.migrations.chain(version, self._plan.schema_version)

    def _kept(self, log: str, item: Any) -> JSON:
        column = self.graph.schema.fields[self._plan.fields[log]]
        kept: JSON
        (kept,) = column.dump(column.check([item]))
        dumps(kept, "message")
        return kept

    def as_tool(
        self, *, name: str | None = None, description: str | None = None, timeout: Seconds | None = None
    ) -> Tool:
        """Return the tool that asks a separate session of this program."""
        return child_tool(self, name=name, description=description, timeout=timeout, said=None)

    async def run(self, turn: Turn) -> JSON:
        """See `Program.run`."""
        return await self._run(context_of(turn))

    async def _run(self, turn: TurnContext) -> JSON:
        graph = self._graph_on(turn.writer.store)
        turn.in_step = True
        again = turn.resumed or turn.engine is not None
        writer = turn.engine = RuntimeWriter(turn, graph.session, f"{self.name}@{self.version}")
        live = Turn(turn)
        inline: list[Observer] = list(turn.inline or ())
        if self._updates:
            inline.append(Updates(lambda event: live.emit(delta_of(event))))
        request = RunRequest(
            observers=tuple(subscription(each) for each in inline),
            stop=lambda: turn.stop is not None,
            step_limit=self._step_limit,
            tenant=turn.key.tenant,
        )
        scope = Scope(
            invocation_id=turn.invocation.invocation_id,
            correlation_id=turn.invocation.correlation_id,
            session_id=turn.key.session_id,
            metadata={},
            turn=live,
        )
        outcome = await execution.run(graph, request, scope, partial(_open, turn, writer, again))
        match outcome.status:
            case "completed":
                return self._output(outcome.state)
            case "suspended":
                raise TurnSuspended(writer.waits, partial=False)
            case "interrupted":
                raise TurnStopped
            case _:
                assert outcome.error is not None
                raise outcome.error

    @property
    def graph_name(self) -> str:
        """The name of the graph, which also names its pauses where it runs without the runtime."""
        return self.graph.name

    def unfit(self, wait: Wait, answer: Mapping[str, JSON]) -> list[tuple[str, str]]:
        """Return the fields of an answer to a pause that the graph's state does not take, and why."""
        fields, schema = self.graph.schema.fields, wait.schema
        if not fields.keys() <= (schema["properties"].keys() if isinstance(schema, Mapping) else set()):
            return []  # a node waits for it, and it is not for the state
        return [(path, fault["msg"]) for path, fault in faults(fields, answer)]

    async def resume_pause(self, store: Store, wait: Wait, payload: dict[str, Any]) -> Outcome[Any]:
        """Resume the graph where it had paused without the runtime, and return the outcome."""
        return await resume_pause(self.graph, store, wait, payload, output=self._output, step_limit=self._step_limit)

    def _graph_on(self, store: Store) -> GraphPlan[Any]:
        """Return the graph with its sessions, and its checkpoints, in the runtime's store."""
        if self._bound is None or self._bound[0] is not store:
            plan = self._plan.bound_to(store)
            bound = replace(self.graph, session=plan, store=store, checkpoints=self._checkpoints)
            self._bound = (store, bound)
        return self._bound[1]


async def _open(
    turn: TurnContext, writer: RuntimeWriter, again: bool, graph: GraphPlan[Any], _: Any, scope: Scope, __: Any
) -> OpenedRun:
    """Open a turn's run of the graph: from its last checkpoint in this step, if it runs `again`, or from the head."""
    plan = graph.session
    try:
        found = await _last_point(turn) if again else None
        if found is not None:
            journal = await _restored(graph, plan, turn, writer, *found)
            return OpenedRun(scope, journal, journal.points.entry(), existed=True)
        loaded = project(plan, turn)
        journal = fresh_journal(graph, writer, RuntimeSession(plan, turn, loaded))
        return OpenedRun(scope, journal, plan.entry(loaded, None, graph.name), existed=True)
    except TenutoError as error:
        turn.note_store_failure(error)
        raise


async def _restored(
    graph: GraphPlan[Any], plan: SessionPlan, turn: TurnContext, writer: RuntimeWriter, run: Run, point: Checkpoint
) -> GraphJournal:
    """Restore what a run left at its last checkpoint: on the session as that run left it, or on the current one."""
    found = await stored_run(turn.writer.store, run, point)
    restored = restore(found, graph)
    moved = run.base_version != turn.replica.version
    payload = None if run.run_id == turn.run_id else _answer_to(turn, run)
    blank = LoadedSession(turn.replica.life, writer.run.base, True, {}, {})
    if run.run_id == turn.run_id and not moved:
        writer.recall(found.logs)
        restored.ledger.distrust(run.ends, point.ends)
        return restored.journal(writer, RuntimeSession(plan, turn, blank))
    rewrite = project(plan, turn).rewrite if turn.replica.schema_version != plan.schema_version else None
    _continue_from_head(restored, plan, turn, found, moved=moved)
    if payload is not None:
        overlay(restored, payload, turn.invocation.invocation_id)
    removed = rewrite.removed if rewrite else frozenset[str]()
    journal = restored.journal(writer, RuntimeSession(plan, turn, blank, removed))
    await journal.repeat_cursor()
    return journal


def _continue_from_head(
    restored: RestoredRun, plan: SessionPlan, turn: TurnContext, found: StoredRun, *, moved: bool
) -> None:
    """Let this run write what a former run had beyond the session's head.

    If the session has changed, its fields are those it has now, and what the run had added is added to them.
    """
    points, anew = restored.points, restored.ledger.rewrites
    cursor: Any = found.checkpoint.cursor
    if moved:
        base = Base(ends={name: LogEnd(0, 0, length) for name, length in cursor["base"].items()})
        points.rebase(plan, project(plan, turn), base)
    top = points.at(())
    for name in plan.logs:
        held = turn.replica.logs.get(name)
        column = top.schema.fields[plan.fields[name]]
        wanted = column.dump(top.state.__dict__[column.name])
        kept = common(held or (), wanted)
        anew.pop(name, None)
        if held is None or kept < len(held) or name in turn.writer.logs.ahead:
            anew[name] = (kept, turn.replica.ends.get(name))
    for entry in cursor["frames"]:
        path = tuple(entry["path"])
        point = points.at(path)
        points.replace(path, point.state, [name for name in point.schema.fields if path or name not in plan.names])
    if underway := cursor["underway"]:
        restored.progress.put_back({underway: LogChange(items=found.logs.get(underway, []), anew=True)})


async def _last_point(turn: TurnContext) -> tuple[Run, Checkpoint] | None:
    """Return the graph's last checkpoint within this step of the turn, and the run that left it."""
    store, key = turn.writer.store, turn.key
    for run in reversed(await store.runs.of_invocation(turn.invocation.invocation_id, tenant=key.tenant)):
        point = await store.checkpoints.latest(key, run_id=run.run_id)
        cursor: Any = point.cursor if point else None
        if point is not None and isinstance(cursor, Mapping) and "frames" in cursor:
            return (run, point) if cursor.get("round") == turn.step else None
    return None


def _answer_to(turn: TurnContext, run: Run) -> dict[str, Any] | None:
    """Return the answer to a graph that had suspended; None if that run stopped for another reason."""
    waits = [wait for wait in turn.waits.of_run(run.run_id) if wait.kind == WaitKind.SIGNAL]
    if run.status is not RunStatus.SUSPENDED or not waits:
        return None
    answer = answer_of(waits[-1])
    if not isinstance(answer, Mapping | None):
        raise SuspensionResumePayloadInvalid(
            f"{waits[-1].signal_id!r} is answered with fields of the state, not with {type(answer).__name__}.",
            invocation_id=turn.invocation.invocation_id,
        )
    return dict(answer or {})


def _plan_of(graph: GraphPlan[Any]) -> SessionPlan:
    """Return how the graph keeps its sessions; by default a session is the whole state."""
    plan = graph.session
    if plan.store is not None and not isinstance(plan.store, Store):
        raise InvalidInput(
            f"Graph {graph.name!r} keeps its sessions in a {type(plan.store).__name__}; as a program it keeps them "
            "in the runtime's store. Compile it without a session store, or with that one."
        )
    if plan.is_whole:
        graph.warn_of_whole_state(f"Graph {graph.name!r} was made a program, but ")
    return plan


def _output_of(graph: GraphPlan[Any], output: str | Output | None) -> Output:
    if output is None:
        return lambda _: None
    if not isinstance(output, str):
        return output
    column = graph.schema.fields.get(output)
    if column is None:
        raise InvalidInput(f"The output is {output!r}, which {graph.kind.__name__} does not declare.", field=output)
    return lambda state: column.dump(state.__dict__[output])
