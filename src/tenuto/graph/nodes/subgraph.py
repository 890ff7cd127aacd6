"""A compiled graph as a node of another, and what crosses the border between them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tenuto.errors import GraphCompileError
from tenuto.graph.engine.graph_frame import GraphFrame
from tenuto.graph.engine.graph_plan import GraphPlan
from tenuto.graph.engine.node import Middleware, Node, Update, through
from tenuto.graph.engine.scope import scope_variable
from tenuto.graph.state import Schema, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """How fields cross.

    By default nothing goes in and every same-named field comes out. `inputs` {child: parent} lists what goes in,
    `outputs` {parent: child} replaces what comes out. `projects_in` and `projects_out` are the same by equal names,
    and complete: what they leave out does not cross.
    """

    inputs: Mapping[str, str] | None = None
    outputs: Mapping[str, str] | None = None
    projects_in: frozenset[str] | None = None
    projects_out: frozenset[str] | None = None

    @property
    def declared(self) -> bool:
        """Whether the border is declared by equal names."""
        return self.projects_in is not None or self.projects_out is not None

    def entering(self) -> dict[str, str]:
        """Return what goes in, as child to parent."""
        if self.declared:
            return {name: name for name in self.projects_in or ()}
        return dict(self.inputs or {})

    def leaving(self, parent: Schema, child: Schema) -> dict[str, str]:
        """Return what comes out, as parent to child."""
        if self.declared:
            return {name: name for name in self.projects_out or ()}
        if self.outputs is not None:
            return dict(self.outputs)
        return {name: name for name in child.fields if name in parent.fields}

    def into(self, state: State) -> dict[str, Any]:
        """Return the values a child begins with."""
        return {child: state.__dict__[parent] for child, parent in self.entering().items()}

    def out_of(self, values: Mapping[str, Any], parent: Schema, child: Schema) -> dict[str, Any]:
        """Return the values a child passes to its parent; a missing one is left out."""
        return {name: values[inner] for name, inner in self.leaving(parent, child).items() if inner in values}

    def check(self, where: str, parent: Schema, child: Schema) -> None:
        """Refuse two forms at once, and fields that are not declared."""
        if self.declared and (self.inputs is not None or self.outputs is not None):
            raise GraphCompileError(
                "conflicting_projection_forms", f"{where} declares its border by sets and by maps; use one of them."
            )
        pairs = [
            *((c, p) for c, p in self.entering().items()),
            *((c, p) for p, c in self.leaving(parent, child).items()),
        ]
        for child_field, parent_field in pairs:
            for name, schema in ((child_field, child), (parent_field, parent)):
                check_declared(where, name, schema)


def check_declared(where: str, name: str, schema: Schema) -> None:
    """Refuse a field the schema does not have."""
    if name not in schema.fields:
        raise GraphCompileError(
            "mapping_references_undeclared_field",
            f"{where} names {name!r}, which {schema.kind.__name__} does not declare.",
            field=name,
        )


@dataclass(eq=False, repr=False)
class SubgraphNode(Node):
    """Runs a graph on its own schema. The node itself has no events and counts no step; what runs inside does."""

    has_events: ClassVar[bool] = False

    graph: GraphPlan[Any]
    projection: Projection

    def graphs(self) -> list[GraphPlan[Any]]:
        """See `Node.graphs`."""
        return [self.graph]

    async def execute(self, frame: GraphFrame, state: Any, described: dict[str, Any]) -> Update:  # noqa: ARG002 - it has no events to describe
        """See `Node.execute`."""
        inner = frame.inside(self.name, self.graph, state)
        final = await inner.execute(self.graph.schema.initial(self.projection.into(state)))
        return self.projection.out_of(final.__dict__, frame.graph.schema, self.graph.schema)


async def run_inside(
    inside: Callable[[], GraphFrame],
    start: Any,
    middleware: tuple[Middleware, ...],
    again: Callable[[], None] = lambda: None,
) -> Update:
    """Run the graph of a branch or an instance through its middleware, and return its final fields.

    Each attempt has its own frame; `again` is called before another one.
    """
    frame, tried = inside(), False

    async def call(state: Any) -> Update:
        nonlocal tried
        if tried:
            again()
        tried = True
        scope = scope_variable.get()
        return dict((await (inside() if scope and scope.attempt_index else frame).execute(state)).__dict__)

    token = scope_variable.set(frame.scope._replace(frame=frame))
    try:
        return await through(middleware, call)(start)
    finally:
        scope_variable.reset(token)
