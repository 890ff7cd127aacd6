"""OpenTelemetry of turns and graphs: one object that is a runtime's listener and a graph's observer.

It is called in place, in the context of the running code, so that the first line of a program, a tool or a node already
has its span.
"""

from collections.abc import Collection
from typing import Any

from tenuto.argument import check_word
from tenuto.graph.events.node_event import FrameEvent, InvocationEvent, MetadataEvent, NodeEvent
from tenuto.observe.attributes import IMPLEMENTATION, VERSION
from tenuto.runtime.stream.moments import Moment, TurnAhead
from tenuto.runtime.stream.notices import RunEnded

try:
    from opentelemetry.metrics import MeterProvider, get_meter_provider
    from opentelemetry.trace import TracerProvider, get_tracer_provider

    from tenuto.observe.graph_spans import INVOCATION, GraphSpans
    from tenuto.observe.open_spans import OpenSpans
    from tenuto.observe.turn_metrics import TurnMetrics
    from tenuto.observe.turn_spans import Traces, TurnSpans
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "Spans need OpenTelemetry, which is an extra: pip install 'tenuto[otel]'.", name=error.name
    ) from error

__all__ = ["INVOCATION", "OTelObserver"]


class OTelObserver:
    """Makes spans and metrics with the given providers; without them, with those that the application has set globally.

    Give it to a runtime as one of its `listeners`: it follows all its turns, and the graphs among its programs. A graph
    that runs by itself has it attached, at the outermost graph, or gets it passed to `run`. One observer serves any
    number of turns and invocations at once, and nothing is ever registered globally. With `traces="session"` all turns
    of a session, and of the sessions it asks, are in one trace; otherwise a turn is below the span that is current
    where it is run, or in its own trace. Turns that continue others link to them. `detached` names subgraphs and
    fan-out nodes that get separate traces, each with its own root; the span that dispatched them links there.
    """

    inline = True

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        detached: Collection[str] = (),
        *,
        meter_provider: MeterProvider | None = None,
        traces: Traces = "turn",
    ) -> None:
        check_word(traces, Traces, "traces")
        self._spans = OpenSpans((tracer_provider or get_tracer_provider()).get_tracer(IMPLEMENTATION, VERSION))
        self._graphs = GraphSpans(self._spans, detached)
        self._turns = TurnSpans(self._spans, traces)
        self._metrics = TurnMetrics((meter_provider or get_meter_provider()).get_meter(IMPLEMENTATION, VERSION))

    def __call__(self, happened: Any) -> None:
        """See `InlineListener` and `InlineObserver`; given twice, it makes its spans once."""
        match happened:
            case Moment():
                self._turns.take(happened)
                self._metrics.take(happened)
            case RunEnded():
                self._metrics.notice(happened)
            case NodeEvent() | FrameEvent() | InvocationEvent() | MetadataEvent():
                self._graphs.take(happened)

    @property
    def open_count(self) -> int:
        """How many turns, calls, invocations, nodes and graphs inside nodes are under way; 0 when nothing runs."""
        return len(self._spans)

    def trace_context(self) -> str | None:
        """Return the running invocation's or turn's span as a W3C traceparent; None if there is none."""
        return self._spans.trace_context()

    def trace_ahead(self, ahead: TurnAhead) -> str | None:
        """See `InlineListener`."""
        return self._turns.trace_ahead(ahead)
