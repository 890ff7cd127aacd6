"""What crosses the border between a graph and the graph inside one of its nodes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.errors import GraphCompileError
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


def projection_of(
    inputs: Mapping[str, str] | None,
    outputs: Mapping[str, str] | None,
    projects_in: Iterable[str] | None = None,
    projects_out: Iterable[str] | None = None,
) -> Projection:
    """Return a projection from a builder's arguments."""
    return Projection(
        inputs=inputs,
        outputs=outputs,
        projects_in=None if projects_in is None else frozenset(projects_in),
        projects_out=None if projects_out is None else frozenset(projects_out),
    )
