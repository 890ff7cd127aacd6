"""Suspending: what a node, or a middleware that must not, does about it, and which run a placeholder means."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tenuto.graph import SignalDescriptor, suspend
from tenuto.graph.engine.scope import current_scope
from tests.conformance.adapter.mocks import Directive, Place
from tests.conformance.adapter.records import Record, Run
from tests.conformance.adapter.vocabulary import DirectiveUnknown, FixtureProblem, known

WORDS = ("conditional_suspend", "pre_next_calls_suspend_with_descriptor", "signal_payload", "suspend_with_descriptor")
"""The words of a case whose graph needs a store to be paused in."""
_SUSPENDED = re.compile(r"<from (.+) suspended outcome>")
_COMPLETED = re.compile(r"<invocation_id from (.+) completed invoke>")


def suspends_in(nodes: Mapping[str, Any]) -> bool:
    """Tell whether a graph has a node that always suspends."""
    return any(isinstance(spec, dict) and "suspend_with_descriptor" in spec for spec in nodes.values())


def descriptor_of(spec: Any, place: object) -> SignalDescriptor:
    """Return the descriptor that a fixture writes down."""
    given = known(spec, ("signal_id", "metadata"), f"descriptor at {place}")
    if "signal_id" not in given:
        raise FixtureProblem(f"the descriptor at {place} has no signal_id")
    return SignalDescriptor(str(given["signal_id"]), given.get("metadata") or {})


def suspending(spec: Any, place: Place) -> Directive:
    """`suspend_with_descriptor`."""
    descriptor = descriptor_of(spec, place)

    async def directive(_: Any) -> Mapping[str, Any]:
        await suspend(descriptor)

    return directive


def suspending_at_index(
    spec: Any, otherwise: Callable[[Any], Awaitable[Mapping[str, Any]]] | None, place: Place
) -> Directive:
    """`conditional_suspend`: suspend in one instance, and do in the others what stands beside it."""
    given = known(spec, ("suspend_on_item_index", "descriptor"), f"conditional_suspend of {place}")
    descriptor = descriptor_of(given["descriptor"], place)

    async def directive(state: Any) -> Mapping[str, Any]:
        scope = current_scope()
        if scope is not None and scope.fan_out_index == given["suspend_on_item_index"]:
            await suspend(descriptor)
        await hold_up(place.record)
        return await otherwise(state) if otherwise else {}

    return directive


async def hold_up(record: Record) -> None:
    """Let an instance or branch wait beside the one that suspends, if the case wants to see it cancelled."""
    scope = current_scope()
    beside = scope is not None and (scope.fan_out_index is not None or scope.branch_name is not None)
    if record.siblings.probed and record.run_number == 0 and beside:
        await record.siblings.hold_up()


def invocation_named(text: str, record: Record) -> str:
    """Return the invocation that `resume_invocation` means: by its id, or as that of an earlier run."""
    if not text.startswith("<"):
        return text
    if found := _SUSPENDED.fullmatch(text):
        return _id_of(text, found[1], "previous", [run for run in record.runs if run.suspended][::-1])
    if found := _COMPLETED.fullmatch(text):
        ended = [run for run in record.runs if run.outcome is not None and run.outcome.completed]
        return _id_of(text, found[1], "initial", ended)
    raise DirectiveUnknown(f"placeholder {text}")


def _id_of(text: str, name: str, nearest: str, runs: list[Run]) -> str:
    fitting = runs if name == nearest else [run for run in runs if run.name == name]
    if not fitting or fitting[0].invocation_id is None:
        raise FixtureProblem(f"there is no such outcome: {text}")
    return fitting[0].invocation_id
