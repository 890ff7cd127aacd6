"""What every kind of node does: given a state, return a partial update. The engine does everything around it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tenuto.errors import InvalidInput
from tenuto.graph.state import State
from tenuto.ids import MAX_ID_BYTES
from tenuto.quote import quote

if TYPE_CHECKING:
    from tenuto.graph.engine.graph_frame import GraphFrame
    from tenuto.graph.engine.graph_plan import GraphPlan

Update = Mapping[str, Any]
Next = Callable[[Any], Awaitable[Update]]
Middleware = Callable[[Any, Next], Awaitable[Update]]
Body = Callable[[Any], Awaitable[Update] | Update]


@dataclass(eq=False, repr=False)
class Node:
    """A node of a graph. `has_events` is False for one that only stands for what runs inside it."""

    has_events: ClassVar[bool] = True

    name: str
    middleware: tuple[Middleware, ...]

    def describe(self, state: State) -> dict[str, Any]:  # noqa: ARG002 - for the kinds that have something to add
        """Return what the node adds to its events, worked out before it runs."""
        return {}

    def graphs(self) -> "list[GraphPlan[Any]]":
        """Return the graphs that run inside this node."""
        return []

    async def execute(self, frame: "GraphFrame", state: Any, described: dict[str, Any]) -> Update:
        """Do the node's work on a state and return its partial update."""
        raise NotImplementedError  # port


def check_name(name: Any, what: str = "A node") -> str:
    """Return the name of a node or a graph; refuse anything but a text as long as an id may be."""
    if not isinstance(name, str) or not 0 < len(name.encode(errors="replace")) <= MAX_ID_BYTES:
        raise InvalidInput(f"{what} needs a name of 1 to {MAX_ID_BYTES} bytes, got {quote(name)}.")
    return name


def through(chain: tuple[Middleware, ...], call: Next) -> Next:
    """Return the call with middleware around it, the first outermost."""
    for middleware in reversed(chain):
        call = _Link(middleware, call)
    return call


@dataclass(frozen=True, slots=True, eq=False)
class _Link:
    """One middleware and what it calls."""

    middleware: Middleware
    following: Next

    async def __call__(self, state: Any) -> Update:
        update: Any = await self.middleware(state, self.following)
        if not isinstance(update, Mapping):
            name = getattr(self.middleware, "__name__", type(self.middleware).__name__)
            raise TypeError(f"middleware {name} returned {type(update).__name__}; it must return the update")
        return update
