"""The kinds of node share one face: given a state, return a partial update. The engine does everything around it."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tenuto.errors import InvalidInput
from tenuto.graph.engine.suspend import Suspending
from tenuto.graph.state import State
from tenuto.ids import MAX_ID_BYTES
from tenuto.quote import quote
from tenuto.runtime.turn.invocation import signal_in

if TYPE_CHECKING:
    from tenuto.graph.compiled import CompiledGraph
    from tenuto.graph.engine.graph_frame import GraphFrame

Update = Mapping[str, Any]
Next = Callable[[Any], Awaitable[Update]]
Middleware = Callable[[Any, Next], Awaitable[Update]]
Body = Callable[[Any], Awaitable[Update]]


class ErrorPolicy(StrEnum):
    """What becomes of a node that runs several things at once when one of them fails."""

    FAIL_FAST = "fail_fast"
    COLLECT = "collect"


class Node:
    """A place in a graph. `has_events` is False for one that only stands for what runs inside it."""

    has_events = True

    def __init__(self, name: str, middleware: tuple[Middleware, ...]) -> None:
        self.name = name
        self.middleware = middleware

    def describe(self, state: State) -> dict[str, Any]:  # noqa: ARG002 - for the kinds that have something to say
        """Return what the node's events say besides, worked out before it runs."""
        return {}

    def graphs(self) -> "list[CompiledGraph[Any]]":
        """Return the graphs that run inside this node."""
        return []

    async def execute(self, frame: "GraphFrame", state: Any, described: dict[str, Any]) -> Update:
        """Do the node's work on a state and return its partial update."""
        raise NotImplementedError  # port


def check_name(name: Any, what: str = "A node") -> str:
    """Return the name of a node, or of a graph; anything but a text that an id may be long is refused."""
    if not isinstance(name, str) or not 0 < len(name.encode(errors="replace")) <= MAX_ID_BYTES:
        raise InvalidInput(f"{what} needs a name of 1 to {MAX_ID_BYTES} bytes, got {quote(name)}.")
    return name


class FunctionNode(Node):
    """A node whose work is an async function."""

    def __init__(self, name: str, body: Body, middleware: tuple[Middleware, ...]) -> None:
        super().__init__(name, middleware)
        self._body = body

    async def execute(self, frame: "GraphFrame", state: Any, described: dict[str, Any]) -> Update:  # noqa: ARG002 - only the state is the function's
        """See `Node.execute`."""
        working: Any = self._body(state)
        if not inspect.isawaitable(working):
            raise TypeError(f"node {self.name!r} is not async: it returned {type(working).__name__}")
        try:
            update: Update = await working
        except BaseExceptionGroup as group:
            signal = _signal_in(group)
            if signal is None:
                raise
            raise signal from None
        return update


def _signal_in(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """Return the suspension, or the stop, among exceptions of a task group; it is what the node asked for."""
    found: BaseException | None = group.subgroup(Suspending)
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found or signal_in(group)


def through(chain: tuple[Middleware, ...], call: Next) -> Next:
    """Return the call with middleware around it, the first outermost."""
    for middleware in reversed(chain):
        call = _Link(middleware, call)
    return call


class _Link:
    """One middleware and what it calls."""

    __slots__ = ("_middleware", "_next")

    def __init__(self, middleware: Middleware, following: Next) -> None:
        self._middleware = middleware
        self._next = following

    async def __call__(self, state: Any) -> Update:
        update: Any = await self._middleware(state, self._next)
        if not isinstance(update, Mapping):
            name = getattr(self._middleware, "__name__", type(self._middleware).__name__)
            raise TypeError(f"middleware {name} returned {type(update).__name__}; it must return the update")
        return update
