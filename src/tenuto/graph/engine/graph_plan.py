"""What a compiled graph consists of: the part of it that is executed."""

import logging
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tenuto.graph.engine.choice import Choice
from tenuto.graph.engine.node import Middleware, Node
from tenuto.graph.events.event_queue import EventQueues, Subscription
from tenuto.graph.graph_end import END
from tenuto.graph.session.migration import MigrationRegistry
from tenuto.graph.session.session_plan import SessionPlan
from tenuto.graph.state import Schema, State, schema_of
from tenuto.graph.warnings import SessionNotKept, outside
from tenuto.store.store import Store

S = TypeVar("S", bound=State)

_log = logging.getLogger("tenuto.graph")

Edge = Any
"""Where a node leads: a node's name, END, or a function of the state that returns one of them."""


@dataclass(kw_only=True, eq=False)
class GraphPlan(Generic[S]):
    """A graph that has been checked. It keeps no state of a run, so it can serve any number of runs at once.

    `store` is where checkpoints are kept, `session` how sessions are. `observers` and `queues` are those of all its
    runs.
    """

    kind: type[S]
    name: str
    nodes: Mapping[str, Node]
    edges: Mapping[str, Edge]
    entry: str
    middleware: tuple[Middleware, ...] = ()
    store: Store | None = None
    migrations: MigrationRegistry = field(default_factory=lambda: MigrationRegistry("checkpoint"))
    fan_out_batch: int = 1
    session: SessionPlan | None = None
    observers: list[Subscription] = field(default_factory=list)
    queues: EventQueues = field(default_factory=EventQueues)
    schema: Schema = field(init=False)
    _chains: dict[str, tuple[Middleware, ...]] = field(init=False)
    _warned: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.schema = schema_of(self.kind)
        self._chains = {node.name: self.middleware + node.middleware for node in self.nodes.values()}

    def leads_to(self, choice: Choice, target: Any) -> bool:
        """Return whether a conditional edge may lead there."""
        if choice.targets is not None:
            return any(target is each or (isinstance(target, str) and target == each) for each in choice.targets)
        return target is END or (isinstance(target, str) and target in self.nodes)

    def chain_of(self, node: Node) -> tuple[Middleware, ...]:
        """Return the middleware around a node, the graph's outside the node's own."""
        return self._chains[node.name]

    @property
    def pause_store(self) -> Store | None:
        """Where a suspended run is kept: with the checkpoints, or with the sessions."""
        return self.store or (self.session.own if self.session else None)

    @property
    def is_observed(self) -> bool:
        """Whether this graph, or one inside it, has an observer."""
        inner = (graph for node in self.nodes.values() for graph in node.graphs())
        return bool(self.observers) or any(graph.is_observed for graph in inner)

    def warn_of_no_session_store(self, session_id: str) -> None:
        """Warn, once, that a run names a session of which nothing is kept; the run continues without it."""
        if self._warned:
            return
        self._warned = True
        message = (
            f"Graph {self.name!r} was run with session_id={session_id!r}, but has no session store: the session is "
            "neither loaded nor saved. Give the graph with_session_store(...)."
        )
        _log.warning(message)
        with suppress(SessionNotKept):  # also where warnings are errors
            warnings.warn(SessionNotKept(message), stacklevel=outside())
