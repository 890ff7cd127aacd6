"""A compiled graph as a node of another."""

from typing import Any

from tenuto.graph.engine.graph_frame import GraphFrame
from tenuto.graph.engine.graph_plan import GraphPlan
from tenuto.graph.engine.node import Middleware, Node, Update
from tenuto.graph.nodes.projection import Projection
from tenuto.graph.state import Schema


class SubgraphNode(Node):
    """Runs a graph on its own schema. The node itself has no events and counts no step; what runs inside does."""

    has_events = False

    def __init__(
        self, name: str, graph: GraphPlan[Any], projection: Projection, middleware: tuple[Middleware, ...]
    ) -> None:
        super().__init__(name, middleware)
        self.graph = graph
        self.projection = projection

    def graphs(self) -> list[GraphPlan[Any]]:
        """See `Node.graphs`."""
        return [self.graph]

    async def execute(self, frame: GraphFrame, state: Any, described: dict[str, Any]) -> Update:  # noqa: ARG002 - it has no events to describe
        """See `Node.execute`."""
        inner = frame.inside(self.name, self.graph, state)
        final = await inner.execute(self.graph.schema.initial(self.projection.into(state)))
        return project_out(self.projection, frame.graph.schema, self.graph.schema, final.__dict__)


def project_out(projection: Projection, parent: Schema, child: Schema, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values a child passes to its parent; a missing one is left out."""
    leaving = projection.leaving(parent, child)
    return {name: values[inner] for name, inner in leaving.items() if inner in values}
