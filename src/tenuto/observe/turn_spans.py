"""Spans of turns and of the calls they make, by OpenTelemetry's conventions for generative AI.

A turn is `invoke_agent`, a call of a model `chat`, a call of a tool `execute_tool`. A call whose result is known is not
made: it is an event on the turn's span, and no span of its duration.
"""

from collections.abc import Hashable, Mapping
from typing import Any

from opentelemetry.trace import SpanKind

from tenuto.graph.events.node_event import Ending
from tenuto.observe.attributes import of_call, of_replay, of_turn, of_usage
from tenuto.observe.open_spans import Kind, OpenSpan, OpenSpans
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
)
from tenuto.writing.error_record import category_of
from tenuto.writing.run_ids import RunIds

_ENDINGS: Mapping[str, Ending] = {
    "completed": Ending.COMPLETED,
    "failed": Ending.ERRORED,
    "suspended": Ending.SUSPENDED,
    "interrupted": Ending.INTERRUPTED,
}


class TurnSpans:
    """Makes the spans of turns; see `OTelObserver`."""

    def __init__(self, spans: OpenSpans) -> None:
        self._all = spans

    def take(self, moment: Moment) -> None:
        """Begin or end the span that a moment is about, or note it on the span that is open."""
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
                self._note(moment, "tenuto.call.replayed", of_replay(moment))
            case CallRepeated():
                self._call_repeats(moment)
            case TokensCounted():
                self._tokens_counted(moment)

    def _turn_begins(self, moment: TurnBegan) -> None:
        if (key := _turn(moment.ids)) in self._all:
            return
        attributes = of_turn(moment)
        name = " ".join(("invoke_agent", attributes.get("gen_ai.agent.name", ""))).rstrip()
        self._all.begin(key, Kind.TURN, (self._all.tracer.start_span(name, attributes=attributes),))

    def _turn_ends(self, moment: TurnOver) -> None:
        attributes: dict[str, Any] = {"tenuto.status": moment.status}
        if moment.status == "failed":
            attributes["error.type"] = moment.category or "failed"
        ending = _ENDINGS.get(moment.status, Ending.CANCELLED)
        self._all.end(_turn(moment.ids), ending, moment.exception, moment.category, attributes)

    def _call_begins(self, moment: CallBegan) -> None:
        if (key := _call(moment.ids, moment.place)) in self._all:
            return
        turn = self._all.get(_turn(moment.ids))
        name, attributes = of_call(moment, None if turn is None else _attribute(turn, "gen_ai.request.model"))
        kind = SpanKind.CLIENT if moment.kind == "model" else SpanKind.INTERNAL
        self._all.begin(key, Kind.CALL, (self._all.tracer.start_span(name, kind=kind, attributes=attributes),))

    def _call_ends(self, moment: CallOver) -> None:
        error = moment.exception
        ending, category, attributes = Ending.COMPLETED, None, {}
        if isinstance(error, Exception):
            ending, category = Ending.ERRORED, category_of(error)
            attributes["error.type"] = type(error).__qualname__
        elif error is not None:
            ending = Ending.CANCELLED
        self._all.end(_call(moment.ids, moment.place), ending, error, category, attributes)

    def _call_repeats(self, moment: CallRepeated) -> None:
        attributes: dict[str, Any] = {
            "tenuto.call.making": moment.making,
            "tenuto.call.pause": moment.pause,
            "error.type": type(moment.exception).__qualname__,
        }
        if (opened := self._all.get(_call(moment.ids, moment.place))) is not None:
            opened.spans[-1].add_event("tenuto.call.repeated", attributes)

    def _tokens_counted(self, moment: TokensCounted) -> None:
        counts = of_usage(moment.usage)
        if (turn := self._all.get(_turn(moment.ids))) is not None:
            turn.counts.update(counts)
        called = None if moment.place is None else self._all.get(_call(moment.ids, moment.place))
        if called is None:
            return
        called.counts.update(counts)
        span, model = called.spans[-1], moment.usage.model
        span.set_attribute("gen_ai.response.model", model)
        if _attribute(called, "gen_ai.operation.name") == "chat" and _attribute(called, "gen_ai.request.model") is None:
            span.set_attribute("gen_ai.request.model", model)
            span.update_name(f"chat {model}")

    def _note(self, moment: Moment, name: str, attributes: dict[str, Any]) -> None:
        if (turn := self._all.get(_turn(moment.ids))) is not None:
            turn.spans[-1].add_event(name, attributes)


def _turn(ids: RunIds) -> Hashable:
    return "turn", ids.run_id, ids.attempt


def _call(ids: RunIds, place: CallPlace) -> Hashable:
    return "call", ids.run_id, ids.attempt, *place


def _attribute(opened: OpenSpan, name: str) -> Any:
    """Return an attribute that a span was given; None if it does not keep any, because it is not recorded."""
    return (getattr(opened.spans[-1], "attributes", None) or {}).get(name)
