"""One attempt at a node's body, with its pair of events."""

import asyncio
from typing import TYPE_CHECKING, Any

from tenuto.errors import GraphRunError, NodeException
from tenuto.graph.engine.cause import NOT_THE_NODES
from tenuto.graph.engine.node import Node, Update
from tenuto.graph.engine.scope import scope_variable
from tenuto.graph.engine.suspend import Suspending
from tenuto.graph.events.node_event import NodeEvent, started
from tenuto.graph.state import place_of
from tenuto.writing.error_record import shown

if TYPE_CHECKING:
    from tenuto.graph.engine.graph_frame import GraphFrame


class Attempt:
    """The innermost call of a step. It is called again for every retry.

    The completed event of a successful attempt is held back until the edge is evaluated; that of a failed one is sent
    at once. `step` is the number of this node execution; -1 for a node that only stands for what runs inside it.
    """

    __slots__ = ("_cut", "_frame", "_node", "_pending", "name", "state", "step")

    def __init__(self, frame: "GraphFrame", node: Node, state: Any, step: int) -> None:
        self.name = node.name
        self.state = state
        self.step = step
        self._frame = frame
        self._node = node
        self._pending: NodeEvent | None = None
        self._cut: BaseException | None = None

    async def __call__(self, state: Any) -> Update:
        """Run the node's body once."""
        frame, node = self._frame, self._node
        observed = frame.run.delivery is not None and node.has_events
        if self._pending is not None:
            cut = self._cut and node_exception(frame.graph.name, node.name, self.state, self._cut)
            self.end(self.state, cut)
        try:
            described = node.describe(state)
            if observed:
                self._begin(state, described)
            frame.attempt = self
            return await node.execute(frame, state, described)
        except Suspending as signal:
            if self._pending is not None:
                frame.emit(self._pending.suspended(signal.request.descriptor))
                self._pending = None
            raise
        except asyncio.CancelledError as error:
            self._cut = error  # by a middleware, if there is a next attempt
            raise
        except (GraphRunError, *NOT_THE_NODES) as error:
            self._fail(state, error, observed=observed)
            raise
        except Exception as error:
            # The event names the node; middleware gets the exception itself.
            wrapped = node_exception(frame.graph.name, node.name, self.state, error)
            wrapped.__cause__ = error
            self._fail(state, wrapped, observed=observed)
            raise
        finally:
            frame.attempt = None

    def end(self, post_state: Any = None, error: BaseException | None = None, update: Any = None) -> None:
        """Send the completed event that was held back, if there is one."""
        if self._pending is not None:
            self._frame.emit(self._pending.ended(post_state, error, update))
            self._pending = None

    def _begin(self, state: Any, described: dict[str, Any]) -> None:
        scope = scope_variable.get()
        assert scope is not None
        self._pending = started(scope, self.step, state, self._frame.parent_states, described)
        self._frame.emit(self._pending)

    def _fail(self, state: Any, error: BaseException, *, observed: bool) -> None:
        if observed and self._pending is None:
            self._begin(state, {})
        self.end(error=error)


def node_exception(graph: str, node: str, state: Any, error: BaseException) -> NodeException:
    """Return the error that says which node raised another one."""
    return NodeException(f"Node {node!r} of graph {graph!r} raised {shown(error)}.", **place_of(graph, node, state))
