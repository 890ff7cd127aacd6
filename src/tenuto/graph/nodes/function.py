"""A function as a node, and in place of a graph: as a branch, or as an instance of a fan-out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tenuto.errors import GraphRunError, NodeException
from tenuto.graph.engine.graph_frame import GraphFrame
from tenuto.graph.engine.node import Body, Node, Update
from tenuto.graph.engine.scope import scope_variable
from tenuto.graph.engine.suspend import Suspending
from tenuto.graph.engine.thread_call import call_body
from tenuto.graph.events.node_event import NodeEvent, started
from tenuto.graph.state import place_of
from tenuto.writing.error_record import shown


@dataclass(eq=False, repr=False)
class FunctionNode(Node):
    """A node whose work is a function of the state: an async one, or a plain one, which runs in a thread."""

    body: Body

    async def execute(self, frame: GraphFrame, state: Any, described: dict[str, Any]) -> Update:  # noqa: ARG002 - the function gets only the state
        """See `Node.execute`."""
        try:
            update: Update = await call_body(f"node {self.name!r}", self.body, state)
        except BaseExceptionGroup as group:
            signal: BaseException | None = group.subgroup(Suspending)
            if signal is None:
                raise
            # A task group in the body: the suspension is what the node asked for.
            while isinstance(signal, BaseExceptionGroup):
                signal = signal.exceptions[0]
            raise signal from None
        return update


@dataclass(slots=True, eq=False, repr=False)
class FunctionCall:
    """Calls a function inside its own frame; every attempt has one pair of events, under the call's name.

    `shows` turns what the function returned into an update of the parent, which the event shows as if it were alone;
    `beside` is what the function gets beside the state.
    """

    frame: GraphFrame
    name: str
    what: str
    work: Callable[..., Any]
    shows: Callable[[Any], Update]
    beside: tuple[Any, ...] = ()
    state: Any = None

    async def __call__(self, state: Any) -> Any:
        """Call the function on a state of the parent."""
        frame, event = self.frame, self._begin(state)
        self.state, frame.attempt = state, self
        try:
            result = await call_body(self.what, self.work, state, *self.beside)
        except Suspending as signal:
            if event:
                frame.emit(event.suspended(signal.request.descriptor))
            raise
        except Exception as error:
            if event:
                frame.emit(event.ended(error=self._failed(state, error)))
            raise
        finally:
            frame.attempt = None
        if event:
            frame.emit(self._ended(event, state, result))
        return result

    def _begin(self, state: Any) -> NodeEvent | None:
        scope = scope_variable.get()
        if self.frame.run.delivery is None or scope is None:
            return None
        event = started(scope, self.frame.run.next_step(), state, self.frame.parent_states)
        self.frame.emit(event)
        return event

    def _ended(self, event: NodeEvent, state: Any, result: Any) -> NodeEvent:
        graph = self.frame.graph
        try:
            update = self.shows(result)
            return event.ended(graph.schema.merge(state, update, graph.name, self.name), update=update)
        except GraphRunError as error:
            return event.ended(error=error)  # only reported: the node raises it when all results are merged

    def _failed(self, state: Any, error: Exception) -> NodeException:
        place = place_of(self.frame.graph.name, self.name, state)
        failed = NodeException(f"{self.what} raised {shown(error)}.", **place)
        failed.__cause__ = error
        return failed
