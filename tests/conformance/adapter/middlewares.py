"""Middleware entries: the engine's own, and the test middleware of the vocabulary."""

import math
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tenuto.graph import suspend
from tenuto.graph.engine.cause import derived_category
from tenuto.graph.middleware import FailureIsolation, Retry, Timing, TimingRecord
from tests.conformance.adapter.records import Record, plain
from tests.conformance.adapter.suspensions import descriptor_of
from tests.conformance.adapter.vocabulary import DirectiveUnknown, FixtureProblem, known, listing, mapping

Next = Callable[[Any], Awaitable[Mapping[str, Any]]]
Middleware = Callable[[Any, Next], Awaitable[Mapping[str, Any]]]


class Clock:
    """A monotonic clock that moves on every read."""

    def __init__(self, spec: Any) -> None:
        given = known(spec, ("type", "advance_ms_per_call"), "clock_stub")
        if given.get("type") != "deterministic_monotonic":
            raise DirectiveUnknown(f"clock {given.get('type')} at clock_stub")
        self._step = given["advance_ms_per_call"]
        self._reads = 0

    def __call__(self) -> float:
        self._reads += 1
        return float(self._reads * self._step / 1000)


class Middlewares:
    """Builds the middleware of one case."""

    def __init__(self, record: Record, clock: Clock | None) -> None:
        self._record = record
        self._clock = clock
        self._makers: dict[str, Callable[[dict[str, Any], str], Middleware]] = {
            "retry": self._retry,
            "timing": self._timing,
            "failure_isolation": self._isolation,
            "trace_recorder": self._recorder,
            "short_circuit": self._short_circuit,
            "error_recovery": self._recovery,
        }

    def all_of(self, spec: Any, place: str) -> list[Middleware]:
        """Return a list's middleware, outermost first."""
        return [self._one(mapping(entry, place), place) for entry in listing(spec or [], place)]

    def _one(self, entry: dict[str, Any], place: str) -> Middleware:
        given = dict(entry)
        kind = given.pop("type", None)
        if kind is None and len(given) == 1 and "retry" in given:
            kind, given = "retry", mapping(given["retry"], place)
        if kind is None and "name" in given:
            return self._logging(given, place)
        if kind not in self._makers:
            raise DirectiveUnknown(f"middleware {kind} at {place}")
        return self._makers[kind](given, place)

    def _retry(self, given: dict[str, Any], place: str) -> Middleware:
        known(given, ("max_attempts", "backoff", "classifier"), f"retry at {place}")
        # Fixtures assert nothing about waiting, so without a backoff there is none.
        backoff = known(
            given.get("backoff", {"type": "deterministic", "seconds": 0}), ("type", "seconds"), f"backoff at {place}"
        )
        if backoff["type"] != "deterministic":
            raise DirectiveUnknown(f"backoff {backoff['type']} at {place}")
        seconds = float(backoff["seconds"])
        return Retry(
            max_attempts=given["max_attempts"],
            backoff=lambda _: seconds,
            classifier=_classifier(given["classifier"], place) if "classifier" in given else None,
        )

    def _timing(self, given: dict[str, Any], place: str) -> Middleware:
        known(given, ("node_name", "on_complete"), f"timing at {place}")
        if given.get("on_complete") != {"capture_to": "timing_records"}:
            raise DirectiveUnknown(f"on_complete {given.get('on_complete')} at {place}")

        def keep(told: TimingRecord) -> None:
            self._record.timing_records[self._record.run_number].append(
                {
                    "node_name": told.node_name,
                    "duration_ms": round(told.duration_ms) if self._clock else math.nan,
                    "outcome": told.outcome,
                    "exception_category": told.exception_category,
                }
            )

        return Timing(keep, clock=self._clock) if self._clock else Timing(keep)

    def _isolation(self, given: dict[str, Any], place: str) -> Middleware:
        known(
            given, ("event_name", "degraded_update", "predicate", "catch", "on_caught"), f"failure_isolation at {place}"
        )
        options: dict[str, Any] = {}
        if "catch" in given:
            options["catch"] = frozenset(listing(given["catch"], f"catch at {place}"))
        if "predicate" in given:
            wanted = known(given["predicate"], ("matches_category",), f"predicate at {place}")["matches_category"]
            options["predicate"] = lambda error: derived_category(error) == wanted
        if "on_caught" in given:
            options["on_caught"] = self._on_caught(given["on_caught"], place)
        return FailureIsolation(_degraded(given["degraded_update"], place), given["event_name"], **options)

    def _on_caught(self, spec: Any, place: str) -> Callable[[BaseException], None]:
        given = known(spec, ("kind", "increment_field", "capture_message_field"), f"on_caught at {place}")
        if given.get("kind") != "record_to_state_side_channel":
            raise DirectiveUnknown(f"on_caught {given.get('kind')} at {place}")
        channel = self._record.side_channel

        def caught(error: BaseException) -> None:
            if counter := given.get("increment_field"):
                channel[counter] = channel.get(counter, 0) + 1
            if message := given.get("capture_message_field"):
                channel[message] = str(error)

        return caught

    def _recorder(self, given: dict[str, Any], place: str) -> Middleware:
        known(given, ("name", "pre_marker", "post_marker"), f"trace_recorder at {place}")
        markers = "pre_marker" in given or "post_marker" in given
        before = [given["pre_marker"]] if "pre_marker" in given else []
        after = [given["post_marker"]] if "post_marker" in given else []

        async def recorder(state: Any, following: Next) -> Mapping[str, Any]:
            seen: dict[str, Any] = {"state_in": plain(state), "pre_seen": True, "post_seen": False}
            self._record.trace_records[self._record.run_number, given["name"]].append(seen)
            update = dict(await following(state))
            if markers:
                update["trace"] = [*before, *update.get("trace", []), *after]
            seen |= {"post_seen": True, "partial_update_returned": plain(update)}
            return update

        return recorder

    def _short_circuit(self, given: dict[str, Any], place: str) -> Middleware:
        update = known(given, ("partial_update", "name"), f"short_circuit at {place}")["partial_update"]

        async def short_circuit(_: Any, __: Next) -> Mapping[str, Any]:
            return dict(update)

        return short_circuit

    def _recovery(self, given: dict[str, Any], place: str) -> Middleware:
        update = known(given, ("partial_update", "name"), f"error_recovery at {place}")["partial_update"]

        async def recovery(state: Any, following: Next) -> Mapping[str, Any]:
            try:
                return await following(state)
            except Exception:
                return dict(update)

        return recovery

    def _logging(self, given: dict[str, Any], place: str) -> Middleware:
        keys = ("name", "pre_log", "post_log", "pre_next_calls_suspend_with_descriptor")
        called = known(given, keys, f"wrap_with_middleware at {place}").get(keys[3])
        descriptor = None if called is None else descriptor_of(called, place)

        async def logging(state: Any, following: Next) -> Mapping[str, Any]:
            if "pre_log" in given:
                self._record.middleware_log.append(given["pre_log"])
            if descriptor is not None:
                await suspend(descriptor)
            update = await following(state)
            if "post_log" in given:
                self._record.middleware_log.append(given["post_log"])
            return update

        return logging


def marker_retry(spec: Any, place: str) -> Middleware:
    """`retry_middleware`: retry exactly the error that is named for it."""
    given = known(spec, ("max_attempts", "classifier"), f"retry_middleware at {place}")
    if given.get("classifier") != "transient_marker":
        raise DirectiveUnknown(f"classifier {given.get('classifier')} at {place}")
    return Retry(
        max_attempts=given["max_attempts"],
        backoff=lambda _: 0.0,
        classifier=lambda error, _: "transient_marker_error" in (derived_category(error), str(error)),
    )


def _classifier(spec: Any, place: str) -> Callable[[BaseException, Any], bool]:
    given = known(spec, ("type", "transient_categories"), f"classifier at {place}")
    if "transient_categories" in given:
        categories = set(given["transient_categories"])
        return lambda error, _: derived_category(error) in categories
    if given.get("type") != "state_aware_max_retries_remaining":
        raise DirectiveUnknown(f"classifier {given.get('type')} at {place}")
    return lambda _, state: bool(state.max_retries_remaining > 0)


def _degraded(spec: Any, place: str) -> Mapping[str, Any] | Callable[[Any], Mapping[str, Any]]:
    given = mapping(spec, f"degraded_update at {place}")
    if "callable" not in given:
        return given
    known(given, ("callable", "template", "target_field"), f"degraded_update at {place}")
    if given["callable"] != "state_derived":
        raise DirectiveUnknown(f"degraded_update {given['callable']} at {place}")
    if "target_field" not in given:
        raise FixtureProblem(f"degraded_update at {place} names no target_field")

    def rendered(state: Any) -> Mapping[str, Any]:
        text = re.sub(r"{{\s*state\.(\w+)\s*}}", lambda found: str(getattr(state, found[1])), given["template"])
        return {given["target_field"]: text}

    return rendered
