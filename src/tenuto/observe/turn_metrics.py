"""Metrics of turns: how many, how long, what they called, what they used, and what they waited for.

Values of attributes are few by design: no ids, and no keys of effects, which a program may make up as it goes.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from opentelemetry.metrics import Histogram, Meter

from tenuto.observe.attributes import model_of, program_of
from tenuto.runtime.stream.moments import (
    CallBegan,
    CallOver,
    CallPlace,
    CallRepeated,
    CallReplayed,
    Moment,
    TokensCounted,
    TurnBegan,
    TurnOver,
    WaitsOpened,
)
from tenuto.runtime.stream.notices import RUN_ABANDONED, RunEnded
from tenuto.writing.run_ids import RunIds

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120, 300, 900)
_LONG = (1, 5, 15, 60, 300, 900, 3600, 14400, 86400, 259200, 604800, 2592000)
_CALL_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)

Attributes = dict[str, Any]


@dataclass(slots=True)
class _Running:
    """A turn that runs here: when it began, and its calls."""

    attributes: Attributes
    model: str | None
    since: float
    calls: dict[CallPlace, tuple[float, Attributes]] = field(default_factory=dict)


class TurnMetrics:
    """Counts and times turns; see `OTelObserver`."""

    def __init__(self, meter: Meter) -> None:
        self._running: dict[Hashable, _Running] = {}
        count = meter.create_counter

        def histogram(name: str, unit: str, description: str, buckets: Sequence[float]) -> Histogram:
            return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=buckets)

        self._turns = count("tenuto.turns", "{turn}", "Turns that are over.")
        self._active = meter.create_up_down_counter("tenuto.turns.active", "{turn}", "Turns that run.")
        self._durations = histogram("tenuto.turn.duration", "s", "How long turns ran.", _SECONDS)
        self._queued = histogram("tenuto.turn.queue_time", "s", "How long messages were queued.", _SECONDS)
        self._takeovers = count("tenuto.takeovers", "{turn}", "Turns that were taken over from lost runners.")
        self._calls = count("tenuto.calls", "{call}", "Calls to the outside, and those whose result was known.")
        self._repeats = count("tenuto.call.repeats", "{call}", "Calls that were made again after a failure.")
        self._call_times = histogram("tenuto.call.duration", "s", "How long calls took.", _CALL_SECONDS)
        self._opened = count("tenuto.waits.opened", "{wait}", "Waits that turns opened.")
        self._waited = histogram("tenuto.wait.duration", "s", "How long waits were open.", _LONG)
        chat, tokens = "gen_ai.client.operation.duration", "gen_ai.client.token.usage"
        self._chat_times = histogram(chat, "s", "How long calls of models took.", _CALL_SECONDS)
        self._tokens = histogram(tokens, "{token}", "Tokens that calls of models used.", _TOKENS)

    def take(self, moment: Moment) -> None:
        """Count what a moment is about."""
        match moment:
            case TurnBegan():
                self._turn_begins(moment)
            case TurnOver():
                self._turn_ends(moment)
            case CallBegan():
                self._call_begins(moment)
            case CallOver():
                self._call_ends(moment)
            case CallReplayed():
                self._calls.add(1, _program(moment.ids) | _outcome(moment.kind, "replayed"))
            case CallRepeated():
                kind = self._call(moment.ids, moment.place)[1].get("tenuto.call.kind")
                self._repeats.add(1, _program(moment.ids) | ({} if kind is None else {"tenuto.call.kind": kind}))
            case TokensCounted():
                self._tokens_counted(moment)
            case WaitsOpened():
                for _, kind, _ in moment.waits:
                    self._opened.add(1, _program(moment.ids) | {"tenuto.wait.kind": kind})

    def notice(self, notice: RunEnded) -> None:
        """Count a run that was ended for its lost runners: nobody ran it again, so no moment says so."""
        error = notice.error
        if isinstance(error, Mapping) and error.get("category") == RUN_ABANDONED:
            self._turns.add(1, {"tenuto.status": notice.status, "error.type": RUN_ABANDONED})

    def _turn_begins(self, moment: TurnBegan) -> None:
        if (key := _key(moment.ids)) in self._running:
            return
        attributes = _program(moment.ids)
        self._running[key] = _Running(attributes, model_of(moment.model), perf_counter())
        self._active.add(1, attributes)
        if moment.waited is not None:
            self._queued.record(moment.waited, attributes)
        if (moment.ids.attempt or 1) > 1:
            self._takeovers.add(1, attributes)
        for wait in moment.settled:
            about = {"tenuto.wait.kind": wait.kind, "tenuto.wait.status": wait.status}
            self._waited.record(wait.seconds, attributes | about)

    def _turn_ends(self, moment: TurnOver) -> None:
        running = self._running.pop(_key(moment.ids), None)
        if running is None:
            return
        self._active.add(-1, running.attributes)
        attributes = running.attributes | {"tenuto.status": moment.status}
        if moment.status == "failed":
            attributes["error.type"] = moment.category or "failed"
        self._turns.add(1, attributes)
        self._durations.record(perf_counter() - running.since, attributes)

    def _call_begins(self, moment: CallBegan) -> None:
        running = self._running.get(_key(moment.ids))
        if running is None:
            return
        attributes = running.attributes | {"tenuto.call.kind": str(moment.kind)}
        if moment.tool is not None:
            attributes["gen_ai.tool.name"] = moment.tool
        model = model_of(moment.request) or running.model
        if moment.kind == "model" and model is not None:
            attributes["gen_ai.request.model"] = model
        running.calls[moment.place] = perf_counter(), attributes

    def _call_ends(self, moment: CallOver) -> None:
        running = self._running.get(_key(moment.ids))
        found = None if running is None else running.calls.pop(moment.place, None)
        if found is None:
            return
        since, attributes = found
        seconds, error = perf_counter() - since, moment.exception
        outcome = "done" if error is None else "failed" if isinstance(error, Exception) else "cancelled"
        failure = {"error.type": type(error).__qualname__} if outcome == "failed" else {}
        made = attributes | {"tenuto.call.outcome": outcome} | failure
        self._calls.add(1, made)
        self._call_times.record(seconds, made)
        if attributes["tenuto.call.kind"] == "model":
            names = ("gen_ai.agent.name", "gen_ai.request.model")
            of_model = {name: attributes[name] for name in names if name in attributes}
            self._chat_times.record(seconds, {"gen_ai.operation.name": "chat"} | of_model | failure)

    def _tokens_counted(self, moment: TokensCounted) -> None:
        usage, called = moment.usage, {} if moment.place is None else self._call(moment.ids, moment.place)[1]
        attributes = _program(moment.ids) | {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": called.get("gen_ai.request.model", usage.model),
            "gen_ai.response.model": usage.model,
        }
        for kind, number in (("input", usage.input), ("output", usage.output)):
            if number:
                self._tokens.record(number, attributes | {"gen_ai.token.type": kind})

    def _call(self, ids: RunIds, place: CallPlace) -> tuple[float, Attributes]:
        running = self._running.get(_key(ids))
        return (0.0, {}) if running is None else running.calls.get(place, (0.0, {}))


def _key(ids: RunIds) -> Hashable:
    return ids.run_id, ids.attempt


def _program(ids: RunIds) -> Attributes:
    found = program_of(ids)
    return {"gen_ai.agent.name": found[0]} if found else {}


def _outcome(kind: str, outcome: str) -> Attributes:
    return {"tenuto.call.kind": str(kind), "tenuto.call.outcome": outcome}
