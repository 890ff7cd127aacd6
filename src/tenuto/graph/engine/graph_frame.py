"""A run of a graph: the loop over nodes, written once for every kind of them.

Per step: middleware, `started`, the body, merge, edge, `completed`. A run is a stack of frames, one per graph that is
being executed; each knows its place, its observers and the states above it.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenuto.errors import (
    EdgeException,
    GraphRunError,
    NodeException,
    RoutingError,
    StepLimitReached,
    SuspensionInUnsupportedContext,
)
from tenuto.graph.checkpoint.graph_journal import GraphJournal
from tenuto.graph.engine.cause import NOT_THE_NODES
from tenuto.graph.engine.scope import Scope, scope_variable
from tenuto.graph.engine.suspend import Suspending
from tenuto.graph.events.event_queue import Delivery, Subscription
from tenuto.graph.events.node_event import Ending, FrameEvent, MetadataEvent, NodeEvent, started
from tenuto.graph.nodes.node import Node, Update, through
from tenuto.writing.error_record import shown

if TYPE_CHECKING:
    from tenuto.graph.compiled import CompiledGraph


class Interrupted(BaseException):
    """The stop check said stop; not an error, so that no node or middleware takes it for one.

    `state` is the outermost graph's, wherever the stop was.
    """

    ending = Ending.INTERRUPTED

    def __init__(self, node: str, state: Any) -> None:
        super().__init__(f"stopped before {node}")
        self.node = node
        self.state = state


class GraphRun:
    """One invocation being executed: its counters, its observers, its stop check."""

    def __init__(
        self,
        delivery: Delivery | None,
        observers: tuple[Subscription, ...],
        step_limit: int,
        stop: Callable[[], bool] | None,
        journal: GraphJournal | None = None,
    ) -> None:
        self.delivery = delivery
        self.journal = journal
        self.observers = observers
        self.stop = stop
        self._limit = step_limit
        self._executed = 0
        self._step = journal.step if journal and journal.stops else -1

    def audience(self, graph: "CompiledGraph[Any]") -> tuple[Subscription, ...]:
        """Return the observers of the outermost graph, and of this invocation."""
        return (*graph.observers, *self.observers)

    def next_step(self) -> int:
        """Return the number of the next node execution."""
        self._step += 1
        return self._step

    @property
    def step(self) -> int:
        """The number of the last node execution."""
        return self._step

    def count(self, graph: str, node: str, state: Any) -> None:
        """Count a node execution against the limit."""
        self._executed += 1
        if self._executed > self._limit:
            raise StepLimitReached(
                f"Graph {graph!r} executed {self._limit} nodes and is at {node!r}; raise step_limit if it is no loop.",
                graph=graph,
                node_name=node,
                recoverable_state=state,
                limit=self._limit,
            )


class GraphFrame:
    """One graph being executed, and where: the names above it, their states, and its part of the chains."""

    __slots__ = (
        "_audience",
        "_scopes",
        "attempt",
        "durable",
        "graph",
        "linear",
        "observers",
        "parent",
        "parent_states",
        "rounds",
        "run",
        "scope",
        "unsuspendable",
    )

    def __init__(
        self,
        run: GraphRun,
        graph: "CompiledGraph[Any]",
        scope: Scope,
        parent_states: tuple[Any, ...] = (),
        parent: "GraphFrame | None" = None,
        linear: bool = True,
        collecting: str | None = None,
    ) -> None:
        self.run = run
        self.parent = parent
        # Neither in an instance nor in a branch, so that a cursor can stand here.
        self.linear = linear
        self.durable = linear and run.journal is not None and run.journal.every_node
        self.unsuspendable: str | None = collecting or (parent.unsuspendable if parent else None)
        # What runs a node's body now; None while only middleware runs.
        self.attempt: Any = None
        self.graph = graph
        self.scope = scope
        self.parent_states = parent_states
        # A function that runs as a branch or an instance stands in its parent's own graph: nobody is told twice.
        own = () if parent is not None and parent.graph is graph else tuple(graph.observers)
        self.observers: tuple[Subscription, ...] = (parent.observers if parent else ()) + own
        self._audience = self.observers + run.observers
        self._scopes: dict[str, Scope] = {}
        self.rounds: dict[str, int] = {}

    def inside(
        self,
        node: str,
        graph: "CompiledGraph[Any]",
        state: Any,
        *,
        index: int | None = None,
        branch: str | None = None,
        collecting: str | None = None,
    ) -> "GraphFrame":
        """Return the frame of a graph that runs inside a node; metadata goes its own way in an instance or branch.

        `collecting` names what would go on without it if it failed; nothing in it can be suspended.
        """
        scope = scope_variable.get() or self.scope
        inner = self.scope._replace(
            namespace=(*self.scope.namespace, node),
            fan_out_index_chain=(*self.scope.fan_out_index_chain, index),
            branch_name_chain=(*self.scope.branch_name_chain, branch),
            attempt_index=scope.attempt_index,
            metadata=scope.metadata if index is None and branch is None else scope.metadata.copy(),
        )
        linear = self.linear and index is None and branch is None
        return GraphFrame(self.run, graph, inner, (*self.parent_states, state), self, linear, collecting)

    def above(self) -> "list[tuple[GraphFrame, Any]]":
        """Return the frames this one runs inside, outermost first, with the states they wait in."""
        if self.parent is None:
            return []
        return [*self.parent.above(), (self.parent, self.parent_states[-1])]

    def scope_at(self, node: str) -> Scope:
        """Return the scope of a node's code, made once per frame."""
        scope = self._scopes.get(node)
        if scope is None:
            scope = self._scopes[node] = self.scope._replace(namespace=(*self.scope.namespace, node), frame=self)
        return scope

    def emit(self, event: Any) -> None:
        """Give an event to this frame's observers, outermost graph first, then the invocation's own."""
        if self.run.delivery is not None:
            self.run.delivery.emit(event, self._audience)

    def metadata_set(self, scope: Scope, values: dict[str, Any]) -> None:
        """Tell observers that a node added metadata."""
        if self.run.delivery is not None:
            self.emit(
                MetadataEvent(
                    values=values,
                    namespace=scope.namespace,
                    attempt_index=scope.attempt_index,
                    fan_out_index=scope.fan_out_index,
                    branch_name=scope.branch_name,
                    scope=scope,
                )
            )

    async def execute(self, state: Any) -> Any:
        """Run the graph from its entry, or from where a checkpoint left it, to END; return the state it ends with."""
        try:
            if self.run.delivery is None or self.parent is None:
                return await self._loop(state)
            return await self.run.delivery.around(self._loop(state), FrameEvent.of(self), self._audience)
        finally:
            # They name this frame: left here, all that a run held would wait for the cycle collector.
            self._scopes.clear()

    async def _loop(self, state: Any) -> Any:
        graph, run = self.graph, self.run
        self.rounds.clear()
        name: Any = graph.entry
        if self.linear and run.journal and (point := run.journal.stops.take(self.scope.namespace)):
            state, name = point.state, graph.end if point.node is None else point.node
            run.journal.ledger.adopt(self, state)
            if point.after:
                name = self._following(name, state)
        while name is not graph.end:
            if run.stop is not None and run.stop():
                raise Interrupted(name, self.parent_states[0] if self.parent_states else state)
            state, name = await self._step(graph.nodes[name], state)
        return state

    async def _step(self, node: Node, state: Any) -> tuple[Any, Any]:
        graph = self.graph
        self.run.count(graph.name, node.name, state)
        if not self.linear and self.run.journal is not None:
            # Inside an instance no cursor tells the rounds of a loop apart; attempts at one node are of one round.
            self.rounds[node.name] = self.rounds.get(node.name, -1) + 1
        attempt = _Attempt(self, node, state, self.run.next_step() if node.has_events else -1)
        token = scope_variable.set(self.scope_at(node.name))
        try:
            chain = graph.chain_of(node)
            update = await (through(chain, attempt) if chain else attempt)(state)
            merged = graph.schema.merge(state, update, graph.name, node.name)
            following = self._following(node.name, merged)
        except SuspensionInUnsupportedContext as error:
            place: dict[str, Any] = {"graph": graph.name, "node_name": node.name, "recoverable_state": state}
            located = error if error.node_name else SuspensionInUnsupportedContext(error.message, **place)
            attempt.end(error=located)
            raise located from None
        except (GraphRunError, *NOT_THE_NODES) as error:
            attempt.end(error=error)
            raise
        except Exception as error:
            wrapped = _node_exception(graph.name, node.name, state, error)
            attempt.end(error=wrapped)
            raise wrapped from error
        finally:
            scope_variable.reset(token)
        attempt.end(merged)
        if self.durable and self.run.journal:
            await self.run.journal.completed(self, merged, None if following is graph.end else following, self.run.step)
        return merged, following

    def _following(self, name: str, state: Any) -> Any:
        graph = self.graph
        edge = graph.edges.get(name)
        if edge is None:
            raise RoutingError(
                f"Node {name!r} of graph {graph.name!r} has no outgoing edge.",
                graph=graph.name,
                node_name=name,
                recoverable_state=state,
            )
        if not callable(edge):
            return edge
        try:
            target = edge(state)
        except Exception as error:
            raise EdgeException(
                f"The edge after {name!r} of graph {graph.name!r} raised {shown(error)}.",
                graph=graph.name,
                node_name=name,
                recoverable_state=state,
            ) from error
        if not graph.leads_to(edge, target):
            listed = f"its targets are {', '.join(map(str, edge.targets))}" if edge.targets else "not a node of it"
            raise RoutingError(
                f"The edge after {name!r} of graph {graph.name!r} leads to {target!r}: {listed}.",
                graph=graph.name,
                node_name=name,
                recoverable_state=state,
                target=target,
            )
        return target


class _Attempt:
    """The innermost call of a step: one attempt at the node's body, with its pair of events.

    The completed event of a successful attempt waits until the edge is evaluated; that of a failed one goes out at
    once.
    """

    __slots__ = ("_cut", "_frame", "_node", "_pending", "_step", "state")

    def __init__(self, frame: GraphFrame, node: Node, state: Any, step: int) -> None:
        self._frame = frame
        self._node = node
        self.state = state
        self._step = step
        self._pending: NodeEvent | None = None
        self._cut: BaseException | None = None

    @property
    def name(self) -> str:
        """The node's name."""
        return self._node.name

    @property
    def step(self) -> int:
        """The number of this node execution; -1 for a node that only stands for what runs inside it."""
        return self._step

    async def __call__(self, state: Any) -> Update:
        frame, node = self._frame, self._node
        observed = frame.run.delivery is not None and node.has_events
        if self._pending is not None:
            cut = self._cut and _node_exception(frame.graph.name, node.name, self.state, self._cut)
            self.end(self.state, cut)
        try:
            described = node.describe(state)
            if observed:
                self._begin(state, described)
            frame.attempt = self
            return await node.execute(frame, state, described)
        except Suspending as signal:
            signal.left(node.name, self.state, (*frame.scope.namespace, node.name))
            if frame.linear:
                signal.stands_before(self._step)
            if self._pending is not None:
                frame.emit(self._pending.suspended(signal.descriptor))
                self._pending = None
            raise
        except asyncio.CancelledError as error:
            self._cut = error  # by a middleware, if there is a next attempt
            raise
        except (GraphRunError, *NOT_THE_NODES) as error:
            if observed and self._pending is None:
                self._begin(state, {})
            self.end(error=error)
            raise
        except Exception as error:
            # The event tells of the node; middleware gets the exception itself.
            wrapped = _node_exception(frame.graph.name, node.name, self.state, error)
            wrapped.__cause__ = error
            if observed and self._pending is None:
                self._begin(state, {})
            self.end(error=wrapped)
            raise
        finally:
            frame.attempt = None

    def end(self, post_state: Any = None, error: BaseException | None = None) -> None:
        """Send the completed event that waits, if one does."""
        if self._pending is not None:
            self._frame.emit(self._pending.ended(post_state, error))
            self._pending = None

    def _begin(self, state: Any, described: dict[str, Any]) -> None:
        scope = scope_variable.get()
        assert scope is not None
        self._pending = started(scope, self._step, state, self._frame.parent_states, described)
        self._frame.emit(self._pending)


def _node_exception(graph: str, node: str, state: Any, error: BaseException) -> NodeException:
    return NodeException(
        f"Node {node!r} of graph {graph!r} raised {shown(error)}.", graph=graph, node_name=node, recoverable_state=state
    )
