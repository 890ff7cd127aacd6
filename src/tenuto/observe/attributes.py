"""What spans and logs say of a run, under the specification's names."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from tenuto.graph.engine.scope import Scope
from tenuto.graph.events.node_event import NodeEvent
from tenuto.graph.signal import SignalDescriptor

SPEC_VERSION = "0.109.0"
IMPLEMENTATION = "tenuto"
VERSION = version("tenuto")


def cross_cutting(scope: Scope) -> dict[str, Any]:
    """Return what every span and every log record of an invocation says."""
    said: dict[str, Any] = {"openarmature.correlation_id": scope.correlation_id}
    if scope.session_id is not None:
        said["openarmature.session_id"] = scope.session_id
    return said | user(scope.metadata.values)


def user(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the caller's metadata as attributes."""
    return {f"openarmature.user.{name}": value for name, value in values.items()}


def of_invocation(entry: str, scope: Scope) -> dict[str, Any]:
    """Return what the root of a trace says; `entry` is the first node of the graph that the trace is about."""
    return {
        "openarmature.invocation_id": scope.invocation_id,
        "openarmature.graph.entry_node": entry,
        "openarmature.graph.spec_version": SPEC_VERSION,
        "openarmature.implementation.name": IMPLEMENTATION,
        "openarmature.implementation.version": VERSION,
    }


def of_place(scope: Scope) -> dict[str, Any]:
    """Return where a span stands: the last name of the namespace, and which attempt, instance and branch it is in."""
    said: dict[str, Any] = {
        "openarmature.node.name": scope.namespace[-1],
        "openarmature.node.namespace": list(scope.namespace),
        "openarmature.node.attempt_index": scope.attempt_index,
    }
    if (index := scope.fan_out_index) is not None:
        said["openarmature.node.fan_out_index"] = index
    if (branch := scope.branch_name) is not None:
        said["openarmature.node.branch_name"] = branch
    return said


def of_node(event: NodeEvent) -> dict[str, Any]:
    """Return what the span of an attempt at a node says besides its place."""
    said: dict[str, Any] = {"openarmature.node.step": event.step}
    if (fan_out := event.fan_out_config) is not None:
        said["openarmature.fan_out.item_count"] = fan_out.item_count
        said["openarmature.fan_out.concurrency"] = fan_out.concurrency or 0
        said["openarmature.fan_out.error_policy"] = fan_out.error_policy
    if (branches := event.parallel_branches_config) is not None:
        said["openarmature.parallel_branches.branch_count"] = branches.branch_count
        said["openarmature.parallel_branches.error_policy"] = branches.error_policy
    return said


def of_dispatched(scope: Scope, dispatcher: str) -> dict[str, Any]:
    """Return what an instance or a branch says of the node that dispatched it; nothing, if the scope is neither."""
    said: dict[str, Any] = {}
    if scope.fan_out_index_chain[-1] is not None:
        said["openarmature.fan_out.parent_node_name"] = dispatcher
    if scope.branch_name_chain[-1] is not None:
        said["openarmature.parallel_branches.parent_node_name"] = dispatcher
    return said


def of_suspension(descriptor: SignalDescriptor | None) -> dict[str, Any]:
    """Return what the span of a node that suspended says of the signal it waits for."""
    if descriptor is None:
        return {}
    said: dict[str, Any] = {"openarmature.suspension.signal_id": descriptor.signal_id}
    return said | _flat("openarmature.suspension.metadata", descriptor.metadata)


def _flat(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested values under dotted names, as far as attributes can hold them; None is left out."""
    said: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            said |= _flat(f"{prefix}.{name}", value)
        elif isinstance(value, str | bool | int | float):
            said[f"{prefix}.{name}"] = value
        elif isinstance(value, list | tuple):
            kinds = {type(each) for each in value}
            plain = len(kinds) <= 1 and kinds <= {str, bool, int, float}
            said[f"{prefix}.{name}"] = list(value) if plain else [str(each) for each in value]
        elif value is not None:
            said[f"{prefix}.{name}"] = str(value)
    return said
