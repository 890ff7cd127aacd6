"""A function in place of a graph: as a branch, or as an instance of a fan-out."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from tenuto.errors import GraphRunError, NodeException
from tenuto.graph.engine.graph_frame import GraphFrame
from tenuto.graph.engine.node import Update
from tenuto.graph.engine.scope import scope_variable
from tenuto.graph.engine.suspend import Suspending
from tenuto.graph.events.node_event import NodeEvent, started
from tenuto.graph.state import place_of
from tenuto.writing.error_record import shown


class FunctionCall:
    """Calls a function inside its own frame; every attempt has one pair of events, under the call's name.

    `shown` turns what the function returned into an update of the parent, which the event shows as if it were alone.
    """

    def __init__(
        self,
        frame: GraphFrame,
        name: str,
        what: str,
        work: Callable[[Any], Awaitable[Any]],
        shown: Callable[[Any], Update],
    ) -> None:
        self.state: Any = None
        self.name = name
        self._frame = frame
        self._what = what
        self._work = work
        self._shown = shown

    async def __call__(self, state: Any) -> Any:
        """Call the function on a state of the parent."""
        frame, event = self._frame, self._begin(state)
        self.state, frame.attempt = state, self
        try:
            working: Any = self._work(state)
            if not inspect.isawaitable(working):
                raise TypeError(f"{self._what} is not async: it returned {type(working).__name__}")
            result = await working
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
        if self._frame.run.delivery is None or scope is None:
            return None
        event = started(scope, self._frame.run.next_step(), state, self._frame.parent_states)
        self._frame.emit(event)
        return event

    def _ended(self, event: NodeEvent, state: Any, result: Any) -> NodeEvent:
        graph = self._frame.graph
        try:
            return event.ended(graph.schema.merge(state, self._shown(result), graph.name, self.name))
        except GraphRunError as error:
            return event.ended(error=error)  # only reported: the node raises it when all results are merged

    def _failed(self, state: Any, error: Exception) -> NodeException:
        place = place_of(self._frame.graph.name, self.name, state)
        failed = NodeException(f"{self._what} raised {shown(error)}.", **place)
        failed.__cause__ = error
        return failed
