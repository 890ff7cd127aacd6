"""Spans of turns and of the calls they make, by OpenTelemetry's conventions for generative AI.

A turn is `invoke_agent`, a call of a model `chat`, a call of a tool `execute_tool`. A call whose result is known is not
made: it is an event on the turn's span, and no span of its duration.
"""

from collections.abc import Hashable, Mapping
from hashlib import sha256
from typing import Any, Literal, TypeAlias

from opentelemetry.context import Context, get_current
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
    get_current_span,
    set_span_in_context,
)

from tenuto.graph.events.node_event import Ending
from tenuto.observe.attributes import of_begin, of_call, of_replay, of_turn, of_usage, of_wait, program_of
from tenuto.observe.open_spans import (
    Kind,
    OpenSpan,
    OpenSpans,
    context_from,
    links_to,
    record_exception,
    traceparent_of,
)
from tenuto.runtime.stream.moments import (
    CallBegan,
    CallOver,
    CallPlace,
    CallRepeated,
    CallReplayed,
    Moment,
    TokensCounted,
    TurnAhead,
    TurnBegan,
    TurnOver,
    WaitsOpened,
)
from tenuto.writing.error_record import category_of
from tenuto.writing.run_ids import RunIds

_ENDINGS: Mapping[str, Ending] = {
    "completed": Ending.COMPLETED,
    "failed": Ending.ERRORED,
    "suspended": Ending.SUSPENDED,
    "interrupted": Ending.INTERRUPTED,
}

Traces: TypeAlias = Literal["turn", "session"]
"""Whether each turn that nothing is around has its own trace, or all turns of a session have one."""

MOST_AHEAD = 1000
"""How many turns may be about to begin at once; the span of one that is forgotten begins with its program."""


class TurnSpans:
    """Makes the spans of turns; see `OTelObserver`."""

    def __init__(self, spans: OpenSpans, traces: Traces) -> None:
        self._all = spans
        self._traces = traces
        self._ahead: dict[Hashable, Span] = {}

    def trace_ahead(self, ahead: TurnAhead) -> str | None:
        """Begin the span of a turn whose first commit is being made, and return its trace context.

        It is not current yet. If the turn does not begin, nothing ever asks for it.
        """
        while len(self._ahead) >= MOST_AHEAD:
            self._ahead.pop(next(iter(self._ahead)), None)
        span = self._ahead[_turn(ahead.ids)] = self._begun(ahead)
        return traceparent_of(span)

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
            case WaitsOpened():
                for wait in moment.waits:
                    self._note(moment, "tenuto.wait.opened", of_wait(*wait))
            case TokensCounted():
                self._tokens_counted(moment)

    def _begun(self, ahead: TurnAhead) -> Span:
        """Begin the span of a turn: below the turn that asked for it, in its session's trace, or below the caller's."""
        ending = None if ahead.after is None else self._all.get(_turn(ahead.after))
        around = get_current() if ending is None else ending.before  # not the turn that ends just now
        links: tuple[Link, ...] = ()
        if ahead.asked_by is not None:
            around = context_from(ahead.asked_by)
        elif self._traces == "session" and (apart := session_context(ahead)) is not None:
            caller = get_current_span(around).get_span_context()
            around, links = apart, (Link(caller),) if caller.is_valid else ()
        name = " ".join(("invoke_agent", *program_of(ahead.ids)[:1]))
        return self._all.tracer.start_span(name, context=around, attributes=of_turn(ahead.ids), links=links)

    def _turn_begins(self, moment: TurnBegan) -> None:
        if (key := _turn(moment.ids)) in self._all:
            return
        span = self._ahead.pop(key, None) or self._begun(moment)
        span.set_attributes(of_begin(moment))
        for link in links_to(moment.follows):
            span.add_link(link.context)
        self._all.begin(key, Kind.TURN, (span,))
        if (moment.ids.attempt or 1) > 1:
            span.add_event("tenuto.takeover", {"tenuto.attempt": moment.ids.attempt or 1})
        for wait in moment.settled:
            attributes = of_wait(wait.wait_id, wait.kind, wait.signal_id)
            attributes |= {"tenuto.wait.status": wait.status, "tenuto.wait.open_seconds": wait.seconds}
            span.add_event("tenuto.wait.settled", attributes)

    def _turn_ends(self, moment: TurnOver) -> None:
        attributes: dict[str, Any] = {"tenuto.status": moment.status}
        if moment.status == "failed":
            attributes["error.type"] = moment.category or "failed"
        key, ending = _turn(moment.ids), _ENDINGS.get(moment.status, Ending.CANCELLED)
        opened = self._all.get(key)
        if moment.status == "lost" and opened is not None and moment.exception is not None:
            record_exception(opened.spans[-1], moment.exception)
        self._all.end(key, ending, moment.exception, moment.category, attributes)

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


def session_context(ahead: TurnAhead) -> Context | None:
    """Return a context in the session's trace, below a span that stands for the session; None if it has no trace."""
    try:
        trace = int(ahead.trace_id or "", 16)
    except ValueError:
        return None
    name = f"{ahead.ids.tenant}\0{ahead.ids.session_id}".encode(errors="surrogatepass")
    place = int.from_bytes(sha256(name).digest()[:8])
    found = SpanContext(trace, place, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return set_span_in_context(NonRecordingSpan(found), Context()) if found.is_valid else None


def _turn(ids: RunIds) -> Hashable:
    return "turn", ids.run_id, ids.attempt


def _call(ids: RunIds, place: CallPlace) -> Hashable:
    return "call", ids.run_id, ids.attempt, *place


def _attribute(opened: OpenSpan, name: str) -> Any:
    """Return an attribute that a span was given; None if it does not keep any, because it is not recorded."""
    return (getattr(opened.spans[-1], "attributes", None) or {}).get(name)
