"""What the adapter writes down while a case runs."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from tenuto.graph.compiled import CompiledGraph
from tenuto.graph.events import FailureIsolatedEvent, NodeEvent
from tenuto.graph.scope import current_attempt_index, current_invocation_id, current_scope

if TYPE_CHECKING:
    from tests.conformance.checkpoints import Checkpoints
    from tests.conformance.spans import Tracing


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A body was entered."""

    graph: str
    node: str
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
    """One invocation: how it was asked for, and how it ended."""

    number: int
    name: str = ""
    initial: dict[str, Any]
    invocation_id: str | None = None
    correlation_id: str | None = None
    state: dict[str, Any] | None = None
    error: BaseException | None = None
    crashed: bool = False
    drain: Drain | None = None


@dataclass(slots=True)
class Structure:
    """What the fixture's graphs are made of."""

    outer_nodes: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    fan_outs: set[str] = field(default_factory=set)
    dispatchers: dict[str, dict[str, Any]] = field(default_factory=dict)
    item_fields: dict[str, str] = field(default_factory=dict)
    errors_fields: set[str] = field(default_factory=set)
    collect_fields: dict[str, str] = field(default_factory=dict)
    aborts: dict[str, int] = field(default_factory=dict)

    def is_inner(self, event: NodeEvent) -> bool:
        """Tell whether an event comes from inside an instance or a branch."""
        return any(name in self.fan_outs or name in self.dispatchers for name in event.namespace[:-1])

    def in_fan_out(self, event: NodeEvent) -> bool:
        """Tell whether an event comes from inside an instance."""
        return any(name in self.fan_outs for name in event.namespace[:-1])


class Record:
    """Everything recorded over one case."""

    def __init__(self) -> None:
        self.structure = Structure()
        self.called: Mapping[str, Any] | BaseException | None = None
        self.graph: CompiledGraph[Any] | None = None
        self.runs: list[Run] = []
        self.entries: list[Entry] = []
        self.mock_calls = 0
        self.attempts: Counter[tuple[Any, ...]] = Counter()
        self.deliveries: list[tuple[str, NodeEvent]] = []
        self.isolated: dict[str, list[FailureIsolatedEvent]] = defaultdict(list)
        self.trace_records: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.timing_records: list[dict[str, Any]] = []
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
                invocation_id=current_invocation_id(),
                attempt_index=current_attempt_index(),
                instance=scope.fan_out_index_chain if scope else (),
                state=plain(state),
            )
        )

    def attempt(self, graph: str, node: str) -> int:
        """Count a mock's call and return which it is, from 0: per invocation, and per fan-out instance."""
        scope = current_scope()
        key = (graph, node, current_invocation_id(), scope.fan_out_index_chain if scope else ())
        self.mock_calls += 1
        self.attempts[key] += 1
        return self.attempts[key] - 1

    def execution_order(self, run: Run) -> list[str]:
        """Return the nodes of the outer graph whose body was entered; retries are not repeated."""
        mine = [entry for entry in self.entries if entry.graph == OUTER and entry.invocation_id == run.invocation_id]
        return [entry.node for entry in mine if entry.attempt_index == 0]

    def events(self, observer: str, run: Run | None = None) -> list[NodeEvent]:
        """Return what an observer handled, of one run or of all."""
        return [
            event
            for name, event in self.deliveries
            if name == observer and (run is None or event.scope.invocation_id == run.invocation_id)
        ]

    async def instance_probe(self, state: Any, following: Any) -> Any:
        """Count the instances that run at the same time, as a middleware around each of them."""
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            await asyncio.sleep(0.002)
            return await following(state)
        finally:
            self.in_flight -= 1


OUTER = "outer"
RECORDER = "<recorder>"


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
