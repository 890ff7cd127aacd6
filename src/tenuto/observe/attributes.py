"""Attributes of spans and log records, under the specification's names."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from tenuto.graph.engine.scope import Scope
from tenuto.graph.events.node_event import NodeEvent
from tenuto.graph.signal import SignalDescriptor
from tenuto.model.token_usage import NewUsage
from tenuto.runtime.stream.moments import CallBegan, CallPlace, CallReplayed, TurnBegan
from tenuto.writing.run_ids import RunIds

SPEC_VERSION = "0.109.0"
IMPLEMENTATION = "tenuto"
VERSION = version("tenuto")


def cross_cutting(scope: Scope) -> dict[str, Any]:
    """Return the attributes of every span and every log record of an invocation."""
    ids = {"openarmature.correlation_id": scope.correlation_id, "openarmature.session_id": scope.session_id}
    return _known(ids) | user(scope.metadata)


def of_run(ids: RunIds) -> dict[str, Any]:
    """Return the attributes of a run: the specification's names where it has one, ours otherwise."""
    found = {
        "openarmature.session_id": ids.session_id,
        "openarmature.invocation_id": ids.invocation_id,
        "openarmature.correlation_id": ids.correlation_id,
        "tenuto.tenant": ids.tenant or None,
        "tenuto.run_id": ids.run_id,
        "tenuto.attempt": ids.attempt,
        "tenuto.program": ids.program,
    }
    return _known(found)


def user(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the caller's metadata as attributes."""
    return {f"openarmature.user.{name}": value for name, value in values.items()}


def of_invocation(entry: str, scope: Scope) -> dict[str, Any]:
    """Return the attributes of the root of a trace; `entry` is the first node of the graph it shows."""
    return {
        "openarmature.invocation_id": scope.invocation_id,
        "openarmature.graph.entry_node": entry,
        "openarmature.graph.spec_version": SPEC_VERSION,
        "openarmature.implementation.name": IMPLEMENTATION,
        "openarmature.implementation.version": VERSION,
    }


def of_place(scope: Scope) -> dict[str, Any]:
    """Return the place of a span: the last name of the namespace, and its attempt, instance and branch."""
    place = {
        "openarmature.node.name": scope.namespace[-1],
        "openarmature.node.namespace": list(scope.namespace),
        "openarmature.node.attempt_index": scope.attempt_index,
        "openarmature.node.fan_out_index": scope.fan_out_index,
        "openarmature.node.branch_name": scope.branch_name,
    }
    return _known(place)


def of_node(event: NodeEvent) -> dict[str, Any]:
    """Return the attributes of an attempt at a node, besides its place."""
    found: dict[str, Any] = {"openarmature.node.step": event.step}
    if (fan_out := event.fan_out_config) is not None:
        found["openarmature.fan_out.item_count"] = fan_out.item_count
        found["openarmature.fan_out.concurrency"] = fan_out.concurrency or 0
        found["openarmature.fan_out.error_policy"] = fan_out.error_policy
    if (branches := event.parallel_branches_config) is not None:
        found["openarmature.parallel_branches.branch_count"] = branches.branch_count
        found["openarmature.parallel_branches.error_policy"] = branches.error_policy
    return found


def of_dispatched(scope: Scope, dispatcher: str) -> dict[str, Any]:
    """Return the attributes of an instance or a branch about the node that dispatched it; none for other scopes."""
    found: dict[str, Any] = {}
    if scope.fan_out_index_chain[-1] is not None:
        found["openarmature.fan_out.parent_node_name"] = dispatcher
    if scope.branch_name_chain[-1] is not None:
        found["openarmature.parallel_branches.parent_node_name"] = dispatcher
    return found


def of_suspension(descriptor: SignalDescriptor | None) -> dict[str, Any]:
    """Return the attributes of a suspended node about the signal it waits for."""
    if descriptor is None:
        return {}
    found: dict[str, Any] = {"openarmature.suspension.signal_id": descriptor.signal_id}
    return found | _flat("openarmature.suspension.metadata", descriptor.metadata)


def program_of(ids: RunIds) -> list[str]:
    """Return the name and the version of a turn's program; nothing if it has none."""
    return [] if ids.program is None else ids.program.rsplit("@", 1)


def of_turn(ids: RunIds) -> dict[str, Any]:
    """Return the attributes of a turn's span that are known before the turn begins."""
    found: dict[str, Any] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.conversation.id": ids.session_id,
        "openarmature.implementation.name": IMPLEMENTATION,
        "openarmature.implementation.version": VERSION,
    }
    names = zip(("gen_ai.agent.name", "gen_ai.agent.version"), program_of(ids), strict=False)
    return of_run(ids) | _known(found) | dict(names)


def of_begin(moment: TurnBegan) -> dict[str, Any]:
    """Return the attributes of a turn's span that say how the turn began."""
    found = {
        "gen_ai.request.model": model_of(moment.model),
        "tenuto.origin_id": moment.origin_id,
        "tenuto.input_id": moment.input_id,
        "tenuto.resumed": moment.resumes is not None or (moment.ids.attempt or 1) > 1,
        "tenuto.resumes": moment.resumes,
        "tenuto.queue_time": moment.waited,
    }
    return _known(found)


def of_wait(wait_id: str, kind: str, signal_id: str | None) -> dict[str, Any]:
    """Return the attributes of a wait."""
    return _known({"tenuto.wait.id": wait_id, "tenuto.wait.kind": kind, "tenuto.wait.signal_id": signal_id})


def of_call(moment: CallBegan, model: str | None) -> tuple[str, dict[str, Any]]:
    """Return the name and the attributes of a call's span; `model` is the one of the session's definition."""
    found = of_run(moment.ids) | _of_place(moment.place, moment.kind)
    found["gen_ai.conversation.id"] = moment.ids.session_id
    match moment.kind:
        case "model":
            asked = model_of(moment.request) or model
            found |= {"gen_ai.operation.name": "chat", "gen_ai.request.model": asked}
            name = "chat" if asked is None else f"chat {asked}"
        case "tool":
            tool = moment.tool or moment.place[2]
            found |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
            found |= {"gen_ai.tool.call.id": moment.call_id, "gen_ai.tool.type": "function"}
            name = f"execute_tool {tool}"
        case _:
            name = moment.place[2]
    return name, _known(found)


def of_replay(moment: CallReplayed) -> dict[str, Any]:
    """Return the attributes of a call that was not made because its result is known."""
    found = {"gen_ai.tool.call.id": moment.call_id, "tenuto.call.failed": moment.failed}
    return _of_place(moment.place, moment.kind) | _known(found)


def of_usage(usage: NewUsage) -> dict[str, int]:
    """Return the tokens of a model call that are not zero."""
    counts = {
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
    }
    return {name: count for name, count in counts.items() if count}


def _of_place(place: CallPlace, kind: str) -> dict[str, Any]:
    namespace, step, key = place
    found: dict[str, Any] = {"tenuto.call.kind": kind, "tenuto.call.key": key, "tenuto.step": step}
    return found | ({"tenuto.call.namespace": namespace} if namespace else {})


def model_of(value: Any) -> str | None:
    """Return the model that a request or a definition names, if it does."""
    if isinstance(value, Mapping):
        value = value.get("model", value.get("name"))
    return value if isinstance(value, str) and value else None


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _flat(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested values under dotted names, as far as attributes can hold them; None is left out."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(f"{prefix}.{name}", value)
        elif isinstance(value, str | bool | int | float):
            found[f"{prefix}.{name}"] = value
        elif isinstance(value, list | tuple):
            kinds = {type(each) for each in value}
            plain = len(kinds) <= 1 and kinds <= {str, bool, int, float}
            found[f"{prefix}.{name}"] = list(value) if plain else [str(each) for each in value]
        elif value is not None:
            found[f"{prefix}.{name}"] = str(value)
    return found
