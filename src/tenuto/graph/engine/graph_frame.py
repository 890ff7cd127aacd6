"""One graph being executed: the loop over nodes, written once for every kind of them.

Per step: middleware, `started`, the body, merge, edge, `completed`. A run is a stack of frames, one per graph that is
being executed; each has its place, its observers and the states above it.
"""

from dataclasses import dataclass, field
from typing import Any

from tenuto.errors import EdgeException, GraphRunError, RoutingError, SuspensionInUnsupportedContext
from tenuto.graph.checkpoint.fan_out_progress import At, FanOutRun
from tenuto.graph.checkpoint.suspend_request import SuspendRequest
from tenuto.graph.engine.attempt import Attempt, node_exception
from tenuto.graph.engine.cause import NOT_THE_NODES
from tenuto.graph.engine.graph_plan import GraphPlan
from tenuto.graph.engine.graph_run import GraphRun, Interrupted
from tenuto.graph.engine.node import Node, through
from tenuto.graph.engine.scope import Scope, scope_variable
from tenuto.graph.events.event_queue import Subscription
from tenuto.graph.events.node_event import FrameEvent, MetadataEvent
from tenuto.graph.graph_end import END
from tenuto.graph.signal import SignalDescriptor
from tenuto.graph.state import place_of
from tenuto.model.commit import OpenWait
from tenuto.writing.error_record import shown


@dataclass(slots=True, eq=False, repr=False)
class GraphFrame:
    """One graph being executed, and where: the names above it, their states, and its part of the chains.

    `linear` means neither in an instance nor in a branch, so that a cursor can point here. `unsuspendable` names what
    is around it that would continue without it, if anything. `attempt` is what runs a node's body; None while only
    middleware runs.
    """

    run: GraphRun
    graph: GraphPlan[Any]
    scope: Scope
    parent_states: tuple[Any, ...] = ()
    parent: "GraphFrame | None" = None
    linear: bool = True
    unsuspendable: str | None = None
    attempt: Any = None
    durable: bool = field(init=False)
    observers: tuple[Subscription, ...] = field(init=False)
    rounds: dict[str, int] = field(default_factory=dict)
    _audience: tuple[Subscription, ...] = field(init=False)
    _scopes: dict[str, Scope] = field(default_factory=dict)

    def __post_init__(self) -> None:
        run, parent = self.run, self.parent
        self.durable = self.linear and run.journal is not None and run.journal.every_node
        # A function that runs as a branch or an instance is in its parent's own graph: no observer is added twice.
        own = () if parent is not None and parent.graph is self.graph else tuple(self.graph.observers)
        self.observers = (parent.observers if parent else ()) + own
        self._audience = self.observers + run.observers

    def inside(
        self,
        node: str,
        graph: GraphPlan[Any],
        state: Any,
        *,
        index: int | None = None,
        branch: str | None = None,
        collecting: str | None = None,
    ) -> "GraphFrame":
        """Return the frame of a graph that runs inside a node; an instance or a branch gets a copy of the metadata.

        `collecting` names what would continue without it if it failed; nothing in it can be suspended.
        """
        scope = scope_variable.get() or self.scope
        inner = self.scope._replace(
            namespace=(*self.scope.namespace, node),
            fan_out_index_chain=(*self.scope.fan_out_index_chain, index),
            branch_name_chain=(*self.scope.branch_name_chain, branch),
            attempt_index=scope.attempt_index,
            metadata=scope.metadata if index is None and branch is None else scope.metadata.copy(),
        )
        linear, above = self.linear and index is None and branch is None, (*self.parent_states, state)
        return GraphFrame(self.run, graph, inner, above, self, linear, collecting or self.unsuspendable)

    def above(self) -> "list[tuple[GraphFrame, Any]]":
        """Return the frames this one runs inside, outermost first, with their states."""
        if self.parent is None:
            return []
        return [*self.parent.above(), (self.parent, self.parent_states[-1])]

    def suspend_request(
        self,
        descriptor: SignalDescriptor,
        *,
        completed: bool,
        timeout: float | None = None,
        waits: tuple[OpenWait, ...] = (),
    ) -> SuspendRequest:
        """Return the request of the node whose body runs in this frame to suspend the run."""
        attempt, linear = self.attempt, self
        while not linear.linear and linear.parent is not None:
            linear = linear.parent
        return SuspendRequest(
            frames=(*self.above(), (self, attempt.state)),
            node=attempt.name,
            namespace=(*self.scope.namespace, attempt.name),
            step=linear.attempt.step,
            descriptor=descriptor,
            completed=completed,
            timeout=timeout,
            waits=waits,
        )

    def fan_out(self, node: str, count: int) -> FanOutRun | None:
        """Begin an execution of a fan-out; None where no progress is kept, as inside parallel branches."""
        journal = self.run.journal
        if journal is None or not journal.every_node:
            return None
        at: At = ()
        frame = self
        while not frame.linear:
            if frame.parent is None or frame.scope.branch_name_chain[-1] is not None:
                return None
            at = (frame.scope.fan_out_index_chain[-1], node, frame.rounds[node], *at)
            node, frame = frame.scope.namespace[-1], frame.parent
        return journal.fan_out((*frame.scope.namespace, node), at, count)

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
        """Notify observers that a node added metadata."""
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
            # They refer to this frame: left here, all that a run held would wait for the cycle collector.
            self._scopes.clear()

    async def _loop(self, state: Any) -> Any:
        graph, run = self.graph, self.run
        self.rounds.clear()
        name: Any = graph.entry
        if self.linear and run.journal and (point := run.journal.points.pop(self.scope.namespace)):
            state, name = point.state, END if point.node is None else point.node
            run.journal.ledger.adopt(self)
            if point.after:
                name = self._following(name, state)
        while name is not END:
            if run.stop is not None and run.stop():
                raise Interrupted(name, self.parent_states[0] if self.parent_states else state)
            state, name = await self._step(graph.nodes[name], state)
        return state

    async def _step(self, node: Node, state: Any) -> tuple[Any, Any]:
        graph = self.graph
        self.run.count(graph.name, node.name, state)
        if not self.linear and self.run.journal is not None:
            # Inside an instance no cursor distinguishes the rounds of a loop; all attempts at a node share one.
            self.rounds[node.name] = self.rounds.get(node.name, -1) + 1
        attempt = Attempt(self, node, state, self.run.next_step() if node.has_events else -1)
        token = scope_variable.set(self.scope_at(node.name))
        try:
            chain = graph.chain_of(node)
            update = await (through(chain, attempt) if chain else attempt)(state)
            merged = graph.schema.merge(state, update, graph.name, node.name)
            following = self._following(node.name, merged)
        except SuspensionInUnsupportedContext as error:
            place = place_of(graph.name, node.name, state)
            located = error if error.node_name else SuspensionInUnsupportedContext(error.message, **place)
            attempt.end(error=located)
            raise located from None
        except (GraphRunError, *NOT_THE_NODES) as error:
            attempt.end(error=error)
            raise
        except Exception as error:
            wrapped = node_exception(graph.name, node.name, state, error)
            attempt.end(error=wrapped)
            raise wrapped from error
        finally:
            scope_variable.reset(token)
        attempt.end(merged, update=update)
        if self.durable and self.run.journal:
            frames = [*self.above(), (self, merged)]
            await self.run.journal.completed(frames, None if following is END else following, self.run.step)
        return merged, following

    def _following(self, name: str, state: Any) -> Any:
        graph = self.graph
        edge = graph.edges.get(name)
        if edge is None:
            raise RoutingError(
                f"Node {name!r} of graph {graph.name!r} has no outgoing edge.", **place_of(graph.name, name, state)
            )
        if not callable(edge):
            return edge
        try:
            target = edge(state)
        except Exception as error:
            raise EdgeException(
                f"The edge after {name!r} of graph {graph.name!r} raised {shown(error)}.",
                **place_of(graph.name, name, state),
            ) from error
        if not graph.leads_to(edge, target):
            listed = (
                f"its targets are {', '.join(map(str, edge.targets))}" if edge.targets else "not a node of this graph"
            )
            raise RoutingError(
                f"The edge after {name!r} of graph {graph.name!r} leads to {target!r}: {listed}.",
                **place_of(graph.name, name, state),
                target=target,
            )
        return target
