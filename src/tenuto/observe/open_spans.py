"""Spans of what is under way, each found by its key, and which of them the running code belongs to."""

from collections import Counter
from collections.abc import Hashable
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum, auto
from traceback import format_exception
from typing import Any

from opentelemetry.context import Context, attach, get_current
from opentelemetry.trace import Link, Span, Status, StatusCode, Tracer, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tenuto.errors import GraphRunError, NodeException
from tenuto.graph.engine.cause import category_of
from tenuto.graph.events.node_event import Ending
from tenuto.writing.error_record import clipped, text_of

MOST_TRACE = 100_000
"""How many characters of a traceback are on a span."""

_W3C = TraceContextTextMapPropagator()


class Kind(Enum):
    """What a span represents, as far as it matters to those below it."""

    TURN = auto()
    CALL = auto()
    INVOCATION = auto()
    DISPATCHER = auto()
    FORK = auto()
    PLAIN = auto()


_ROOTS = (Kind.INVOCATION, Kind.TURN)
"""What other traces link to."""


@dataclass(slots=True, eq=False)
class OpenSpan:
    """Something under way: its spans, outermost first (several only if detached), and what was current before.

    `counts` become attributes when it ends.
    """

    key: Hashable
    kind: Kind
    spans: tuple[Span, ...]
    above: "OpenSpan | None"
    before: Context
    below: "set[OpenSpan]" = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    unsettled: "Unsettled | None" = None


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A subgraph that ended, while its node's merge and edge may still fail."""

    node_name: str
    spans: tuple[Span, ...]
    at: int

    def settle(self, error: BaseException | None = None) -> None:
        """End its spans; an error is theirs if it names their node."""
        mine = isinstance(error, GraphRunError) and error.node_name == self.node_name
        for span in reversed(self.spans):
            if mine:
                _finish(span, Ending.ERRORED, error, category_within(error), self.at)
            else:
                _finish(span, Ending.COMPLETED, at=self.at)


class OpenSpans:
    """The spans that have begun and not ended, made by one tracer."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self._open: dict[Hashable, OpenSpan] = {}
        self._current: ContextVar[OpenSpan | None] = ContextVar("tenuto_open_span", default=None)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._open

    def __len__(self) -> int:
        return len(self._open)

    def get(self, key: Hashable) -> OpenSpan | None:
        """Return what is under way under a key."""
        return self._open.get(key)

    @property
    def here(self) -> OpenSpan | None:
        """The innermost that the running code belongs to."""
        return self._current.get()

    def trace_context(self) -> str | None:
        """Return the innermost invocation's or turn's span around the running code as a W3C traceparent."""
        here = self.here
        while here is not None and here.kind not in _ROOTS:
            here = here.above
        return None if here is None else traceparent_of(here.spans[-1])

    def begin(self, key: Hashable, kind: Kind, spans: tuple[Span, ...]) -> None:
        """Note that spans have begun, and make the innermost of them current."""
        opened = OpenSpan(key, kind, spans, self.here, get_current())
        self._open[key] = opened
        if opened.above is not None:
            opened.above.below.add(opened)
            self.settle(opened.above)
        self._current.set(opened)
        attach(set_span_in_context(spans[-1], opened.before))

    def end(
        self,
        key: Hashable,
        ending: Ending,
        error: BaseException | None = None,
        category: str | None = None,
        attributes: dict[str, Any] | None = None,
    ) -> None:
        """End the spans under a key, if there are any, and those below them that are still open."""
        opened = self._open.get(key)
        if opened is None:
            return
        # What was cut off gets no event.
        cut = ending if ending in (Ending.SUSPENDED, Ending.INTERRUPTED) else Ending.CANCELLED
        try:
            for each in list(opened.below):
                self.end(each.key, cut)
            self.settle(opened, error)
            for span in reversed(opened.spans):
                span.set_attributes({**opened.counts, **(attributes or {})})
                _finish(span, ending, error, category)
        finally:
            self.close(opened)  # also when a user's processor raised

    def settle(self, opened: OpenSpan, error: BaseException | None = None) -> None:
        """End the subgraph that ended before in this node, if any."""
        unsettled, opened.unsettled = opened.unsettled, None
        if unsettled is not None:
            unsettled.settle(error)

    def close(self, opened: OpenSpan) -> None:
        """Forget it, and restore what was current before, unless this is another context (a middleware's task)."""
        self._open.pop(opened.key, None)
        if opened.above is not None:
            opened.above.below.discard(opened)
        here = self.here
        while here is not None and here is not opened:
            here = here.above
        if here is not None:
            self._current.set(opened.above)
            attach(opened.before)


def traceparent_of(span: Span) -> str | None:
    """Return a span as a W3C traceparent; None if it is not a valid one."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, set_span_in_context(span, Context()))
    return carrier.get("traceparent")


def context_from(traceparent: str) -> Context:
    """Return the context of a W3C traceparent, an empty one if it is not one."""
    return _W3C.extract({"traceparent": traceparent}, Context())


def links_to(traceparent: str | None) -> tuple[Link, ...]:
    """Return the link to a span that is known by its W3C traceparent, if it is valid."""
    if traceparent is None:
        return ()
    found = get_current_span(context_from(traceparent)).get_span_context()
    return (Link(found),) if found.is_valid else ()


def record_exception(span: Span, error: BaseException) -> None:
    """Add the event of an exception, in texts that any exporter can encode, whatever the exception says of itself."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    text = {
        "exception.type": name,
        "exception.message": text_of(error),
        "exception.stacktrace": clipped("".join(format_exception(error)), MOST_TRACE),
    }
    span.add_event("exception", text)


def category_within(error: BaseException | None) -> str | None:
    """Return the category of what ended a part of a graph: its cause's, if that has one."""
    if error is None:
        return None
    return NodeException.category if isinstance(error, NodeException) else category_of(error) or NodeException.category


def _finish(
    span: Span, ending: Ending, error: BaseException | None = None, category: str | None = None, at: int | None = None
) -> None:
    match ending:
        case Ending.COMPLETED:
            span.set_status(Status(StatusCode.OK))
        case Ending.ERRORED:
            span.set_status(Status(StatusCode.ERROR, category))
            span.set_attribute("openarmature.error.category", category or NodeException.category)
            if error is not None:
                record_exception(span, error)
        case Ending.SUSPENDED | Ending.INTERRUPTED:
            span.set_status(Status(StatusCode.OK))
            span.set_attribute("openarmature.outcome", ending.value)
        case Ending.CANCELLED:
            # Neither completed nor failed, so without a status.
            span.set_attribute("openarmature.outcome", ending.value)
    span.end(at)
