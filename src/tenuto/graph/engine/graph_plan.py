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
from tenuto.graph.session.session_plan import SessionPlan
from tenuto.graph.state import Schema, State, schema_of
from tenuto.graph.warnings import SessionNotGuarded, SessionNotKept, SessionStateUndeclared, outside
from tenuto.migration import MigrationRegistry
from tenuto.store.store import Store

S = TypeVar("S", bound=State)

_log = logging.getLogger("tenuto.graph")

Edge = Any
"""Where a node leads: a node's name, END, or a function of the state that returns one of them."""


@dataclass(kw_only=True, eq=False)
class GraphPlan(Generic[S]):
    """A graph that has been checked. It keeps no state of a run, so it can serve any number of runs at once.

    `store` is where its runs are kept, and in which `tenant`; with `checkpoints` one is written after every node.
    `session` is how sessions are kept. `observers`, `queues` and `warned` are those of all its runs, in any store.
    """

    kind: type[S]
    name: str
    nodes: Mapping[str, Node]
    edges: Mapping[str, Edge]
    entry: str
    session: SessionPlan
    middleware: tuple[Middleware, ...] = ()
    store: Store | None = None
    tenant: str = ""
    checkpoints: bool = False
    migrations: MigrationRegistry = field(default_factory=lambda: MigrationRegistry("checkpoint"))
    fan_out_batch: int = 1
    observers: list[Subscription] = field(default_factory=list)
    queues: EventQueues = field(default_factory=EventQueues)
    warned: set[type[UserWarning]] = field(default_factory=set)
    schema: Schema = field(init=False)
    _chains: dict[str, tuple[Middleware, ...]] = field(init=False)

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
        return self.store or self.session.own

    @property
    def is_observed(self) -> bool:
        """Whether this graph, or one inside it, has an observer."""
        inner = (graph for node in self.nodes.values() for graph in node.graphs())
        return bool(self.observers) or any(graph.is_observed for graph in inner)

    def warn_of_session(self, session_id: str) -> None:
        """Warn, once for each reason, if a run on this session does not do what its caller may expect."""
        run, plan = f"Graph {self.name!r} was run with session_id={session_id!r}, but ", self.session
        if plan.store is None:
            self.warn(
                SessionNotKept,
                f"{run}has no session store: the session is neither loaded nor saved. Give the graph "
                "with_session_state(...) and bind(store), or with_session_store(store, ...).",
            )
            return
        if plan.is_whole:
            self.warn_of_whole_state(run)
        if plan.is_guarded_here:
            self.warn(
                SessionNotGuarded,
                f"{run}{type(plan.store).__name__} can neither lock a session nor compare its version: runs of this "
                "process wait for each other, but of runs in two processes the later one overwrites what the earlier "
                "one saved. Give its save an expected_version, or name concurrency='last_write_wins'.",
            )

    def warn_of_whole_state(self, used: str) -> None:
        """Warn, once, that sessions keep every field of the state, since nobody said which ones they are to keep."""
        self.warn(
            SessionStateUndeclared,
            f"{used}does not declare what its sessions keep: they keep every field of {self.kind.__name__}, scratch "
            "too. Name the fields in a SessionState, and give it to with_session_state(...).",
        )

    def warn(self, kind: type[UserWarning], message: str) -> None:
        """Warn of something once per graph, wherever it is bound."""
        if kind in self.warned:
            return
        self.warned.add(kind)
        _log.warning(message)
        with suppress(kind):  # also where warnings are errors
            warnings.warn(kind(message), stacklevel=outside())
