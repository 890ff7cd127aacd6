"""What the adapter writes down while a case runs."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from tenuto import Store
from tenuto.errors import TenutoError
from tenuto.graph import CompiledGraph, GraphOutcome
from tenuto.graph.engine.scope import current_attempt_index, current_invocation_id, current_scope
from tenuto.graph.events.node_event import FailureIsolatedEvent, NodeEvent
from tests.conformance.adapter.decisions import Decision

if TYPE_CHECKING:
    from tests.conformance.adapter.checkpoints import Checkpoints
    from tests.conformance.adapter.sessions import Sessions
    from tests.conformance.adapter.spans import Tracing
    from tests.conformance.adapter.stores import Stores

SIBLING_PATIENCE_SECONDS = 5.0
OUTER = "outer"
RECORDER = "<recorder>"
ROLES = {
    "dispatcher": (None, "parallel_branches"),
    "inner_fan_out": (False, "fan_out"),
    "leaf": (False, "plain"),
    "outer_fan_out": (True, "fan_out"),
}
"""Parts that nodes play: in the outermost graph (True), in one inside it (False), or anywhere; and their kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A body was entered."""

    graph: str
    node: str
    run: int
    invocation_id: str | None
    attempt_index: int
    instance: tuple[int | None, ...]
    state: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """A drain returned."""

    timeout: float | None
    elapsed: float
    undelivered_count: int
    timeout_reached: bool


@dataclass(slots=True, kw_only=True)
class Run:
    """One invocation: how it was asked for, and how it ended.

    One that goes on with a suspended invocation has the same id; `delivered` and `logged` say where in the record of
    events and of middleware's log lines its own begin.
    """

    number: int
    name: str = ""
    initial: dict[str, Any]
    payload: dict[str, Any] | None = None
    delivered: int = 0
    logged: int = 0
    outcome: GraphOutcome[Any] | None = None
    invocation_id: str | None = None
    correlation_id: str | None = None
    state: dict[str, Any] | None = None
    error: BaseException | None = None
    crashed: bool = False
    drain: Drain | None = None

    @property
    def suspended(self) -> bool:
        """Whether it is paused."""
        return self.outcome is not None and self.outcome.suspended


@dataclass(slots=True)
class Structure:
    """What the fixture's graphs are made of."""

    outer_nodes: set[str] = field(default_factory=set)
    entries: dict[str, str] = field(default_factory=dict)
    fields: dict[str, list[str]] = field(default_factory=dict)
    suspending: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    wrappers: set[str] = field(default_factory=set)
    kinds: dict[tuple[str, str], str] = field(default_factory=dict)
    fan_outs: set[str] = field(default_factory=set)
    dispatchers: dict[str, dict[str, Any]] = field(default_factory=dict)
    item_fields: dict[str, str] = field(default_factory=dict)
    errors_fields: set[str] = field(default_factory=set)
    collect_fields: dict[str, str] = field(default_factory=dict)
    aborts: dict[str, int] = field(default_factory=dict)

    def in_role(self, role: str) -> str | None:
        """Return the one node that plays a part, where a fixture speaks of the part and not of the node's name."""
        outer, kind = ROLES.get(role, (None, ""))
        found = {node for (graph, node), each in self.kinds.items() if each == kind and outer in (None, graph == OUTER)}
        return found.pop() if len(found) == 1 else None

    def is_inner(self, event: NodeEvent) -> bool:
        """Tell whether an event comes from inside an instance or a branch."""
        return any(name in self.fan_outs or name in self.dispatchers for name in event.namespace[:-1])

    def in_fan_out(self, event: NodeEvent) -> bool:
        """Tell whether an event comes from inside an instance."""
        return any(name in self.fan_outs for name in event.namespace[:-1])


@dataclass(slots=True)
class Siblings:
    """What became of instances and branches that ran beside one that suspended; only with `probed` they are held up."""

    probed: bool = False
    running: int = 0
    cancelled: int = 0
    finished: int = 0

    async def hold_up(self) -> None:
        """Wait to be cancelled; whoever is not, within a time far longer than that takes, goes on."""
        self.running += 1
        try:
            await asyncio.sleep(SIBLING_PATIENCE_SECONDS)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        else:
            self.finished += 1
        finally:
            self.running -= 1


class Record:
    """Everything recorded over one case."""

    def __init__(self, stores: "Stores", decisions: Collection[Decision] = ()) -> None:
        self.stores = stores
        self.decisions = decisions
        self.structure = Structure()
        self.called: Mapping[str, Any] | BaseException | None = None
        self.graph: CompiledGraph[Any] | None = None
        self.runs: list[Run] = []
        self.entries: list[Entry] = []
        self.mock_calls: Counter[int] = Counter()
        self.attempts: Counter[tuple[Any, ...]] = Counter()
        self.deliveries: list[tuple[str, NodeEvent]] = []
        self.isolated: dict[str, list[FailureIsolatedEvent]] = defaultdict(list)
        self.trace_records: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
        self.timing_records: dict[int, list[dict[str, Any]]] = defaultdict(list)
        self.middleware_log: list[str] = []
        self.side_channel: dict[str, Any] = {}
        self.node_drains: dict[tuple[str | None, str], Drain] = {}
        self.node_snapshots: dict[tuple[str | None, str], dict[str, list[NodeEvent]]] = {}
        self.captured_fields: set[str] = set()
        self.absence_fields: set[str] = set()
        self.metadata_reads = 0
        self.mutable_reads = 0
        self.queryables: dict[str, Any] = {}
        self.migration_calls: list[str] = []
        self.forbidden_migrations: list[str] = []
        self.checkpoints: Checkpoints | None = None
        self.sessions: Sessions | None = None
        self.pauses: Store | None = None
        self.registration_error: TenutoError | None = None
        self.explicit_saves: list[int] = []
        self.siblings = Siblings()
        self.tracing: Tracing | None = None
        self.first_run: Run | None = None
        self.resumed_run: Run | None = None
        self.in_flight = 0
        self.max_in_flight = 0

    @property
    def run_number(self) -> int:
        """Which run of the case is under way, counted from 0."""
        return len(self.runs) - 1

    def enter(self, graph: str, node: str, state: Any) -> None:
        """Write down that a body was entered."""
        scope = current_scope()
        self.entries.append(
            Entry(
                graph=graph,
                node=node,
                run=self.run_number,
                invocation_id=current_invocation_id(),
                attempt_index=current_attempt_index(),
                instance=scope.fan_out_index_chain if scope else (),
                state=plain(state),
            )
        )

    def attempt(self, graph: str, node: str) -> int:
        """Count a mock's call and return which it is, from 0: per invocation, and per instance or branch."""
        scope = current_scope()
        place = (scope.fan_out_index_chain, scope.branch_name_chain) if scope else ()
        key = (graph, node, self.run_number, current_invocation_id(), place)
        self.mock_calls[self.run_number] += 1
        self.attempts[key] += 1
        return self.attempts[key] - 1

    def execution_order(self, run: Run) -> list[str]:
        """Return the nodes of the outer graph whose body was entered; retries are not repeated."""
        return [entry.node for entry in self.entered(run) if entry.graph == OUTER and entry.attempt_index == 0]

    def entered(self, run: Run) -> list[Entry]:
        """Return the bodies that were entered in a run; one with a number below 0 is known by its id alone."""
        mine = [entry for entry in self.entries if entry.invocation_id == run.invocation_id]
        return [entry for entry in mine if run.number < 0 or entry.run == run.number]

    def events(self, observer: str, run: Run | None = None) -> list[NodeEvent]:
        """Return what an observer handled, of one run or of all."""
        if run is None:
            return [event for name, event in self.deliveries if name == observer]
        later = [other for other in self.runs if other.number > run.number >= 0]
        following = [other.delivered for other in later if other.invocation_id == run.invocation_id]
        own = self.deliveries[run.delivered : min(following, default=None)]
        return [event for name, event in own if name == observer and event.scope.invocation_id == run.invocation_id]

    def began(self, initial: dict[str, Any], payload: dict[str, Any] | None) -> Run:
        """Write down that a run begins, and return what will be told of it."""
        run = Run(
            number=len(self.runs),
            initial=initial,
            payload=payload,
            delivered=len(self.deliveries),
            logged=len(self.middleware_log),
        )
        self.runs.append(run)
        return run

    @property
    def pause_store(self) -> Store | None:
        """Where suspended runs are kept."""
        kept = self.checkpoints or self.sessions
        return kept.store if kept else self.pauses

    async def instance_probe(self, state: Any, following: Any) -> Any:
        """Count the instances that run at the same time, as a middleware around each of them."""
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            await asyncio.sleep(0.002)
            return await following(state)
        finally:
            self.in_flight -= 1


def plain(value: Any) -> Any:
    """Return a value as maps, lists and scalars."""
    if isinstance(value, BaseModel):
        return {name: plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def can_be_changed(view: Any) -> bool:
    """Try to write into a mapping."""
    try:
        view["probe"] = "written"
    except TypeError:
        return False
    return True
