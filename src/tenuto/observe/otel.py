"""OpenTelemetry spans of a run: an inline observer, so that a node's first line already has its span.

One tree per invocation: the invocation, its nodes, and inside nodes the subgraphs, instances and branches. Each attempt
has its own span. The parent of a span is found in the running code's context, which tasks inherit; so the trees of
invocations that run at the same time never mix.
"""

from collections.abc import Collection, Hashable
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum, auto
from time import time_ns
from typing import Any

from tenuto.errors import GraphRunError, NodeException
from tenuto.graph.engine.cause import category_of, derived_category
from tenuto.graph.engine.scope import Scope
from tenuto.graph.events.node_event import Ending, FrameEvent, InvocationEvent, MetadataEvent, NodeEvent, Phase
from tenuto.observe.attributes import (
    IMPLEMENTATION,
    VERSION,
    cross_cutting,
    of_dispatched,
    of_invocation,
    of_node,
    of_place,
    of_suspension,
    user,
)

try:
    from opentelemetry.context import Context, attach, get_current
    from opentelemetry.trace import (
        INVALID_SPAN,
        Link,
        Span,
        Status,
        StatusCode,
        TracerProvider,
        get_current_span,
        get_tracer_provider,
        set_span_in_context,
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "Spans need OpenTelemetry, which is an extra: pip install 'tenuto[otel]'.", name=error.name
    ) from error

INVOCATION = "openarmature.invocation"
_W3C = TraceContextTextMapPropagator()


class _Kind(Enum):
    """What a span represents, as far as it matters to those below it."""

    INVOCATION = auto()
    DISPATCHER = auto()
    FORK = auto()
    PLAIN = auto()


@dataclass(slots=True, eq=False)
class _Open:
    """Something under way: its spans, outermost first (several only if detached), and what was current before."""

    key: Hashable
    kind: _Kind
    spans: tuple[Span, ...]
    above: "_Open | None"
    before: Context
    below: "set[_Open]" = field(default_factory=set)
    done: "_Done | None" = None


@dataclass(frozen=True, slots=True)
class _Done:
    """A subgraph that ended, while its node's merge and edge may still fail."""

    node_name: str
    spans: tuple[Span, ...]
    at: int

    def settle(self, error: BaseException | None = None) -> None:
        """End its spans; an error is theirs if it names their node."""
        mine = isinstance(error, GraphRunError) and error.node_name == self.node_name
        for span in reversed(self.spans):
            if mine:
                _finish(span, Ending.ERRORED, error, _category(error), self.at)
            else:
                _finish(span, Ending.COMPLETED, at=self.at)


class OTelObserver:
    """Makes spans with the given provider; without one, with the provider that the application has set globally.

    Nothing is ever registered globally. `detached` names subgraphs and fan-out nodes that get separate traces, each
    with its own root; the span that dispatched them links there. Attach it to the outermost graph, or pass it to `run`;
    one observer serves any number of invocations at once.
    """

    inline = True

    def __init__(self, tracer_provider: TracerProvider | None = None, detached: Collection[str] = ()) -> None:
        self._tracer = (tracer_provider or get_tracer_provider()).get_tracer(IMPLEMENTATION, VERSION)
        self._detached = frozenset(detached)
        self._open: dict[Hashable, _Open] = {}
        self._current: ContextVar[_Open | None] = ContextVar("tenuto_open_span", default=None)

    def __call__(self, event: Any) -> None:
        """See `InlineObserver`; attached twice, it makes its spans once."""
        match event:
            case NodeEvent(phase=Phase.STARTED):
                if _key(event) not in self._open:
                    self._node_begins(event)
            case NodeEvent():
                self._node_ends(event)
            case FrameEvent(phase=Phase.STARTED):
                if event.frame not in self._open:
                    self._frame_begins(event)
            case FrameEvent():
                self._frame_ends(event)
            case InvocationEvent(phase=Phase.STARTED):
                if id(event.scope) not in self._open:
                    self._invocation_begins(event)
            case InvocationEvent():
                self._end(id(event.scope), Ending(event.phase), event.error, _category(event.error))
            case MetadataEvent():
                self._metadata_added(event)

    @property
    def open_count(self) -> int:
        """How many invocations, nodes and graphs inside nodes have begun and not ended; 0 when nothing runs."""
        return len(self._open)

    def trace_context(self) -> str | None:
        """Return the running invocation's span as a W3C traceparent; None if there is none."""
        here = self._current.get()
        while here is not None and here.kind is not _Kind.INVOCATION:
            here = here.above
        carrier: dict[str, str] = {}
        if here is not None:
            _W3C.inject(carrier, set_span_in_context(here.spans[-1]))
        return carrier.get("traceparent")

    def _invocation_begins(self, event: InvocationEvent) -> None:
        attributes = of_invocation(event.graph.entry, event.scope)
        span = self._span(INVOCATION, event.scope, attributes, get_current(), _links(event.resumed_from))
        self._begin(id(event.scope), _Kind.INVOCATION, (span,))

    def _frame_begins(self, event: FrameEvent) -> None:
        scope, graph = event.scope, event.frame.graph
        attributes = of_place(scope)
        if event.fan_out_index is None and event.branch_name is None:
            attributes["openarmature.subgraph.name"] = graph.name
            spans = self._spans(event.node_name, scope, attributes)
            if graph.name in self._detached:
                spans += self._apart(graph.name, graph.entry, scope, attributes, linked=spans[0])
            self._begin(event.frame, _Kind.PLAIN, spans)
        else:
            spans = self._dispatched(
                event.branch_name or event.node_name, graph.entry, scope, attributes, event.node_name
            )
            self._begin(event.frame, _Kind.FORK, spans)

    def _frame_ends(self, event: FrameEvent) -> None:
        opened = self._open.get(event.frame)
        ending = Ending(event.phase)
        if opened is None or opened.above is None or opened.kind is _Kind.FORK or ending is not Ending.COMPLETED:
            self._end(event.frame, ending, event.error, _category(event.error))
        else:
            self._settle(opened)
            opened.above.done = _Done(event.node_name, opened.spans, time_ns())
            self._close(opened)

    def _node_begins(self, event: NodeEvent) -> None:
        scope, name = event.scope, event.node_name
        attributes = of_place(scope) | of_node(event)
        if event.fan_out_config or event.parallel_branches_config:
            self._begin(_key(event), _Kind.DISPATCHER, self._spans(name, scope, attributes))
        elif self._is_call(event):
            self._begin(_key(event), _Kind.FORK, self._dispatched(name, name, scope, attributes, event.namespace[-2]))
        else:
            self._begin(_key(event), _Kind.PLAIN, self._spans(name, scope, attributes))

    def _node_ends(self, event: NodeEvent) -> None:
        key = _key(event)
        if event.phase == Phase.SUSPENDED:
            self._end(key, Ending.SUSPENDED, attributes=of_suspension(event.descriptor))
        elif event.error is None:
            self._end(key, Ending.COMPLETED)
        else:
            # What a node's own code raised has its own category; where others only pass it on, the carrier's.
            own = key in self._open and self._open[key].kind is _Kind.PLAIN
            category = (derived_category(event.error) if own else None) or _category(event.error)
            self._end(key, Ending.ERRORED, event.error, category)

    def _metadata_added(self, event: MetadataEvent) -> None:
        """Set metadata on the open spans of the line of execution that added it, never on those it shares with others.

        Nodes that dispatch are shared; so is the invocation, for what an instance or a branch adds.
        """
        attributes = user(event.values)
        shared = {_Kind.DISPATCHER}
        if event.scope.fan_out_index is not None or event.scope.branch_name is not None:
            shared.add(_Kind.INVOCATION)
        here = self._current.get()
        while here is not None:
            if here.kind not in shared:
                for span in here.spans:
                    span.set_attributes(attributes)
            here = None if here.kind is _Kind.INVOCATION else here.above

    def _is_call(self, event: NodeEvent) -> bool:
        """Return whether the event belongs to a branch or instance that is a function, for which no graph began."""
        frame = event.scope.frame
        return frame is not None and frame.parent is not None and frame not in self._open

    def _spans(self, name: str, scope: Scope, attributes: dict[str, Any]) -> tuple[Span, ...]:
        """Begin a span below what began last; a middleware's own spans are not part of the tree."""
        here = self._current.get()
        above = get_current() if here is None else set_span_in_context(here.spans[-1], get_current())
        return (self._span(name, scope, attributes, above),)

    def _dispatched(
        self, name: str, entry: str, scope: Scope, attributes: dict[str, Any], dispatcher: str
    ) -> tuple[Span, ...]:
        """Begin the span of an instance or a branch, in a separate trace if its fan-out is detached."""
        attributes = attributes | of_dispatched(scope, dispatcher)
        here = self._current.get()
        if scope.fan_out_index_chain[-1] is not None and dispatcher in self._detached:
            return self._apart(name, entry, scope, attributes, linked=here.spans[-1] if here else INVALID_SPAN)
        return self._spans(name, scope, attributes)

    def _apart(self, name: str, entry: str, scope: Scope, attributes: dict[str, Any], linked: Span) -> tuple[Span, ...]:
        """Begin a trace: its root, and the first span below it."""
        empty = set_span_in_context(INVALID_SPAN, get_current())
        root = self._span(INVOCATION, scope, of_invocation(entry, scope), empty)
        linked.add_link(root.get_span_context())
        return root, self._span(name, scope, attributes, set_span_in_context(root, empty))

    def _span(
        self, name: str, scope: Scope, attributes: dict[str, Any], above: Context, links: tuple[Link, ...] = ()
    ) -> Span:
        attributes = attributes | cross_cutting(scope)
        if scope.session_id is not None:
            attributes["gen_ai.conversation.id"] = scope.session_id
        return self._tracer.start_span(name, context=above, attributes=attributes, links=links)

    def _begin(self, key: Hashable, kind: _Kind, spans: tuple[Span, ...]) -> None:
        opened = _Open(key, kind, spans, self._current.get(), get_current())
        self._open[key] = opened
        if opened.above is not None:
            opened.above.below.add(opened)
            self._settle(opened.above)
        self._current.set(opened)
        attach(set_span_in_context(spans[-1], opened.before))

    def _end(
        self,
        key: Hashable,
        ending: Ending,
        error: BaseException | None = None,
        category: str | None = None,
        attributes: dict[str, Any] | None = None,
    ) -> None:
        opened = self._open.get(key)
        if opened is None:
            return
        # What was cut off gets no event.
        cut = ending if ending in (Ending.SUSPENDED, Ending.INTERRUPTED) else Ending.CANCELLED
        try:
            for each in list(opened.below):
                self._end(each.key, cut)
            self._settle(opened, error)
            for span in reversed(opened.spans):
                span.set_attributes(attributes or {})
                _finish(span, ending, error, category)
        finally:
            self._close(opened)  # also when a user's processor raised

    def _settle(self, opened: _Open, error: BaseException | None = None) -> None:
        done, opened.done = opened.done, None
        if done is not None:
            done.settle(error)

    def _close(self, opened: _Open) -> None:
        """Forget it, and restore what was current before, unless this is another context (a middleware's task)."""
        self._open.pop(opened.key, None)
        if opened.above is not None:
            opened.above.below.discard(opened)
        here = self._current.get()
        while here is not None and here is not opened:
            here = here.above
        if here is not None:
            self._current.set(opened.above)
            attach(opened.before)


def _key(event: NodeEvent) -> Hashable:
    return event.scope.frame, event.namespace, event.attempt_index


def _category(error: BaseException | None) -> str | None:
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
                span.record_exception(error)
        case Ending.SUSPENDED | Ending.INTERRUPTED:
            span.set_status(Status(StatusCode.OK))
            span.set_attribute("openarmature.outcome", ending.value)
        case Ending.CANCELLED:
            # Neither completed nor failed, so without a status.
            span.set_attribute("openarmature.outcome", ending.value)
    span.end(at)


def _links(traceparent: str | None) -> tuple[Link, ...]:
    if traceparent is None:
        return ()
    found = get_current_span(_W3C.extract({"traceparent": traceparent}, Context())).get_span_context()
    return (Link(found),) if found.is_valid else ()
