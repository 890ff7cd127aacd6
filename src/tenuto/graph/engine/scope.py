"""The place of the running code: one context variable, readable anywhere below an invocation."""

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, NamedTuple

from tenuto.errors import InvalidInput
from tenuto.graph.engine.thread_call import on_loop
from tenuto.quote import quote

_RESERVED_PREFIXES = ("openarmature.", "gen_ai.", "tenuto.")

# fmt: off
RESERVED = frozenset({
    "attempt_index", "branch_name", "correlation_id", "error.category", "fan_out.concurrency", "fan_out.error_policy",
    "fan_out.item_count", "fan_out.parent_node_name", "fan_out_index", "graph.entry_node", "graph.spec_version",
    "implementation.name", "implementation.version", "invocation_id", "namespace", "node.attempt_index",
    "node.branch_name", "node.fan_out_index", "node.name", "node.namespace", "node.step", "node_name", "outcome",
    "parallel_branches.branch_count", "parallel_branches.error_policy", "parallel_branches.parent_node_name",
    "run_id", "session_id", "subgraph.name", "suspension.metadata", "suspension.signal_id",
})
# fmt: on
"""Names that the engine itself writes to spans, log records and events, without their prefix."""


def _flat(name: str) -> str:
    return name.replace(".", "_")


_TAKEN = frozenset(map(_flat, RESERVED))


class Scope(NamedTuple):
    """The identities and the place of the code that runs now.

    `metadata` is the caller's, of one line of execution: instances, branches and attempts each get a copy.
    """

    invocation_id: str
    correlation_id: str
    session_id: str | None
    metadata: dict[str, Any]
    namespace: tuple[str, ...] = ()
    fan_out_index_chain: tuple[int | None, ...] = ()
    branch_name_chain: tuple[str | None, ...] = ()
    attempt_index: int = 0
    frame: Any = None
    callbacks: Any = None
    turn: Any = None

    @property
    def fan_out_index(self) -> int | None:
        """The index of the innermost fan-out instance, if any."""
        return next((index for index in reversed(self.fan_out_index_chain) if index is not None), None)

    @property
    def branch_name(self) -> str | None:
        """The name of the innermost branch, if any."""
        return next((name for name in reversed(self.branch_name_chain) if name is not None), None)


scope_variable: ContextVar[Scope | None] = ContextVar("tenuto_scope", default=None)


def current_scope() -> Scope | None:
    """Return the scope of the running code; None outside an invocation."""
    return scope_variable.get()


def current_invocation_id() -> str | None:
    """Return the id of the running invocation."""
    return getattr(scope_variable.get(), "invocation_id", None)


def current_correlation_id() -> str | None:
    """Return the id that joins the attempts and resumes of the running invocation."""
    return getattr(scope_variable.get(), "correlation_id", None)


def current_session_id() -> str | None:
    """Return the id of the session the running invocation is bound to, if any."""
    return getattr(scope_variable.get(), "session_id", None)


def current_attempt_index() -> int:
    """Return which attempt of the node runs, counted from 0."""
    return getattr(scope_variable.get(), "attempt_index", 0)


def get_invocation_metadata() -> Mapping[str, Any]:
    """Return the caller's metadata as this line of execution sees it; empty outside an invocation."""
    scope = scope_variable.get()
    return MappingProxyType(dict(scope.metadata) if scope else {})


def set_invocation_metadata(**values: Any) -> None:
    """Add to the metadata of this line of execution; reserved names and values other than scalars are refused."""
    scope = scope_variable.get()
    if scope is None:
        raise InvalidInput("There is no running invocation to set metadata on.")
    scope.metadata.update(checked_metadata(values))
    if scope.frame is not None:
        on_loop(scope.frame.metadata_set, scope, values)


def checked_metadata(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata whose names are free and whose values are scalars, or lists of them."""
    if not isinstance(values, Mapping):
        raise InvalidInput(f"Invocation metadata is a mapping of names to values, got {quote(values)}.")
    for name, value in values.items():
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"{quote(name)} cannot be the name of invocation metadata.", name=name)
        if name.startswith(_RESERVED_PREFIXES) or _flat(name) in _TAKEN:
            raise InvalidInput(f"The engine itself writes {quote(name)}; give the metadata another name.", name=name)
        parts = value if isinstance(value, list | tuple) else [value]
        if not all(isinstance(part, str | bool | int | float) for part in parts):
            raise InvalidInput(
                f"Metadata {name!r} must be text, a number, a truth value, or a list of them.", name=name
            )
    return dict(values)
