"""One invocation under way, as all its frames share it."""

from collections.abc import Callable
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
        self._step = journal.step if journal and journal.points else -1

    def audience(self, graph: GraphPlan[Any]) -> tuple[Subscription, ...]:
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
                f"Graph {graph!r} executed {self._limit} nodes and is at {node!r}; raise step_limit if this is not an "
                "endless loop.",
                **place_of(graph, node, state),
                limit=self._limit,
            )

    def close(self) -> None:
        """Drop the journal: it holds frames, and they hold this, a cycle that only the collector would free."""
        self.journal = None
