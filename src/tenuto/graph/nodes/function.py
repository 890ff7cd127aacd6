"""A node that calls an async function."""

import inspect
from typing import Any

from tenuto.graph.engine.graph_frame import GraphFrame
from tenuto.graph.engine.node import Body, Middleware, Node, Update
from tenuto.graph.engine.suspend import Suspending


class FunctionNode(Node):
    """A node whose work is an async function of the state."""

    def __init__(self, name: str, body: Body, middleware: tuple[Middleware, ...]) -> None:
        super().__init__(name, middleware)
        self._body = body

    async def execute(self, frame: GraphFrame, state: Any, described: dict[str, Any]) -> Update:  # noqa: ARG002 - the function gets only the state
        """See `Node.execute`."""
        working: Any = self._body(state)
        if not inspect.isawaitable(working):
            raise TypeError(f"node {self.name!r} is not async: it returned {type(working).__name__}")
        try:
            update: Update = await working
        except BaseExceptionGroup as group:
            signal: BaseException | None = group.subgroup(Suspending)
            if signal is None:
                raise
            # A task group in the body: the suspension is what the node asked for.
            while isinstance(signal, BaseExceptionGroup):
                signal = signal.exceptions[0]
            raise signal from None
        return update
