"""One invocation under way, as all its frames share it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tenuto.errors import StepLimitReached
from tenuto.graph.checkpoint.graph_journal import GraphJournal
from tenuto.graph.engine.graph_plan import GraphPlan
from tenuto.graph.events.event_queue import Delivery, Subscription
from tenuto.graph.events.node_event import Ending
from tenuto.graph.state import place_of


class Interrupted(BaseException):
    """The stop check said stop; not an error, so that no node or middleware treats it as one.

    `state` is the outermost graph's, wherever the run stopped.
    """

    ending = Ending.INTERRUPTED

    def __init__(self, node: str, state: Any) -> None:
        super().__init__(f"stopped before {node}")
        self.node = node
        self.state = state


@dataclass(slots=True, eq=False, repr=False)
class GraphRun:
    """One invocation being executed: its counters, its observers, its stop check.

    `step` is the number of the last node execution.
    """

    delivery: Delivery | None
    observers: tuple[Subscription, ...]
    step_limit: int
    stop: Callable[[], bool] | None
    journal: GraphJournal | None = None
    step: int = field(init=False)
    _executed: int = 0

    def __post_init__(self) -> None:
        self.step = self.journal.step if self.journal and self.journal.points else -1

    def audience(self, graph: GraphPlan[Any]) -> tuple[Subscription, ...]:
        """Return the observers of the outermost graph, and of this invocation."""
        return (*graph.observers, *self.observers)

    def next_step(self) -> int:
        """Return the number of the next node execution."""
        self.step += 1
        return self.step

    def count(self, graph: str, node: str, state: Any) -> None:
        """Count a node execution against the limit."""
        self._executed += 1
        if self._executed > self.step_limit:
            raise StepLimitReached(
                f"Graph {graph!r} executed {self.step_limit} nodes and is at {node!r}; raise step_limit if this is not "
                "an endless loop.",
                **place_of(graph, node, state),
                limit=self.step_limit,
            )

    def close(self) -> None:
        """Drop the journal: it holds frames, and they hold this, a cycle that only the collector would free."""
        self.journal = None
