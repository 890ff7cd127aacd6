"""Observers that record, accumulate or raise, and those a node can ask."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tenuto.graph import CompiledGraph
from tenuto.graph.engine.scope import current_invocation_id
from tenuto.graph.events.event_queue import InlineObserver, Subscription, subscription
from tenuto.graph.events.node_event import FailureIsolatedEvent, NodeEvent
from tests.conformance.adapter.records import RECORDER, Record
from tests.conformance.adapter.spans import TRACER
from tests.conformance.adapter.vocabulary import DirectiveUnknown, FixtureProblem, known, listing, mentioned

Observer = Callable[[Any], Awaitable[None]] | InlineObserver
EVENTS = (
    "expected_attempt_events",
    "expected_failure_isolation_event",
    "expected_observer_event",
    "invariants",
    "no_failure_isolation_event",
    "observer_event_invariants",
    "observer_events",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observers:
    """The observers of one case: those attached already, and those to pass to every invoke."""

    per_invocation: tuple[Observer | Subscription, ...]
    main: str


def attach_observers(
    case: dict[str, Any], outer: CompiledGraph[Any], inner: dict[str, CompiledGraph[Any]], record: Record
) -> Observers:
    """Attach a case's observers, and one of the adapter's own where events are asked for that none of them records."""
    passed: list[Observer | Subscription] = []
    names = []
    for entry in listing(case.get("observers", []), "observers"):
        keys = ("name", "attach", "target", "behavior", "phases", "sleep_ms_per_event", "description")
        spec = known(entry, keys, "an observer")
        observer = _observer(spec, record)
        phases = spec.get("phases")
        if spec.get("attach", "graph") == "graph":
            _target(spec.get("target", "outer"), outer, inner).attach_observer(observer, phases=phases)
        elif spec["attach"] == "invocation":
            passed.append(subscription(observer, phases))
        else:
            raise DirectiveUnknown(f"attach {spec['attach']} of observer {spec['name']}")
        if spec.get("behavior") in ("record", "accumulate") and spec.get("target", "outer") == "outer" and not phases:
            names.append(spec["name"])
    passed += record.queryables.values()
    if record.tracing is not None and not record.tracing.named:
        passed.append(record.tracing.observer(TRACER))
    if not names and ("checkpointer" in case or mentioned(case, EVENTS)):
        passed.append(_observer({"name": RECORDER, "behavior": "record"}, record))
    return Observers(per_invocation=tuple(passed), main=names[0] if names else RECORDER)


def _target(name: str, outer: CompiledGraph[Any], inner: dict[str, CompiledGraph[Any]]) -> CompiledGraph[Any]:
    if name == "outer":
        return outer
    if name in inner:
        return inner[name]
    if name == "inner" and len(inner) == 1:
        return next(iter(inner.values()))
    raise FixtureProblem(f"there is no graph {name} to observe")


def _observer(spec: dict[str, Any], record: Record) -> Observer:
    name, behaviour, pause = spec["name"], spec.get("behavior"), spec.get("sleep_ms_per_event", 0)
    if behaviour == "otel" and record.tracing is not None:
        return record.tracing.observer(name)
    if behaviour not in ("record", "accumulate", "raise"):
        raise DirectiveUnknown(f"behavior {behaviour} of observer {name}")
    if isinstance(pause, dict):
        known(pause, ("first_invocation", "subsequent_invocations"), f"sleep_ms_per_event of {name}")

    async def observer(event: Any) -> None:
        if wait := _pause(pause, event, record):
            await asyncio.sleep(wait / 1000)
        if isinstance(event, NodeEvent):
            record.deliveries.append((name, event))
        elif isinstance(event, FailureIsolatedEvent):
            record.isolated[name].append(event)
        if behaviour == "raise":
            raise RuntimeError(f"observer {name} raises on every event")

    return observer


def _pause(pause: Any, event: Any, record: Record) -> float:
    if not isinstance(pause, dict):
        return float(pause)
    first = record.runs[0].invocation_id
    # While the first run is under way its id is not known yet, so it is the first by having no other before it.
    is_first = event.scope.invocation_id == first if first else len(record.runs) == 1
    return float(pause["first_invocation" if is_first else "subsequent_invocations"])


class Queryable:
    """An observer with a read method, reachable from node bodies."""

    methods: dict[str, str] = {}

    async def __call__(self, event: Any) -> None:
        raise NotImplementedError

    def reader(self, method: str) -> Callable[[], Any]:
        """Return a read method; one that this kind lacks is refused."""
        if method not in self.methods:
            raise DirectiveUnknown(f"method {method} of {type(self).__name__}")
        found: Callable[[], Any] = getattr(self, self.methods[method])
        return found

    def waits(self, method: str) -> bool:
        """Tell whether a read must wait for the events before it."""
        return method == "get_bucket_for_current_invocation"

    def has_bucket(self, invocation_id: str | None) -> bool:
        """Tell whether anything is kept for an invocation."""
        return False


class EventCounter(Queryable):
    """Counts node events."""

    methods = {"get_count": "count"}

    def __init__(self) -> None:
        self._seen = 0

    async def __call__(self, event: Any) -> None:
        self._seen += isinstance(event, NodeEvent)

    def count(self) -> int:
        """Return how many were seen."""
        return self._seen


class TypedEventCounter(Queryable):
    """Counts events, in total and per type."""

    methods = {"get_snapshot": "snapshot"}

    def __init__(self) -> None:
        self._total = 0
        self._types: Counter[str] = Counter()

    async def __call__(self, event: Any) -> None:
        self._total += 1
        self._types[type(event).__name__] += 1

    def snapshot(self) -> dict[str, Any]:
        """Return both at one moment."""
        return {"total": self._total, "breakdown": dict(self._types)}


class InvocationAccumulator(Queryable):
    """Keeps a bucket of events per invocation, until it is dropped."""

    methods = {"get_bucket_for_current_invocation": "bucket"}

    def __init__(self) -> None:
        self._buckets: dict[str | None, list[dict[str, Any]]] = defaultdict(list)

    async def __call__(self, event: Any) -> None:
        if isinstance(event, NodeEvent):
            mine = event.scope.invocation_id
            self._buckets[mine].append({"invocation_id": mine, "node_name": event.node_name, "phase": str(event.phase)})

    def bucket(self) -> list[dict[str, Any]]:
        """Return the running invocation's bucket."""
        return list(self._buckets.get(current_invocation_id(), []))

    def has_bucket(self, invocation_id: str | None) -> bool:
        """Tell whether the bucket is there."""
        return invocation_id in self._buckets

    def drop(self, invocation_id: str | None) -> None:
        """Forget an invocation."""
        self._buckets.pop(invocation_id, None)


KINDS: dict[str, type[Queryable]] = {
    "event_counter": EventCounter,
    "typed_event_counter": TypedEventCounter,
    "per_invocation_accumulator": InvocationAccumulator,
}


def add_queryables(case: dict[str, Any], record: Record) -> None:
    """Make a case's queryable observers, before the bodies that ask them."""
    for entry in listing(case.get("queryable_observers", []), "queryable_observers"):
        spec = known(entry, ("name", "kind", "persists_across_invocations", "description"), "a queryable observer")
        if spec["kind"] not in KINDS:
            raise DirectiveUnknown(f"kind {spec['kind']} of queryable observer {spec['name']}")
        record.queryables[spec["name"]] = KINDS[spec["kind"]]()
