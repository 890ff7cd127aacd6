"""Spans of graphs, so that a node's first line already has its span.

One tree per invocation: the invocation, its nodes, and inside nodes the subgraphs, instances and branches. Each attempt
has its own span. The parent of a span is found in the running code's context, which tasks inherit; so the trees of
invocations that run at the same time never mix.
"""

from collections.abc import Collection, Hashable
from time import time_ns
from typing import Any

from opentelemetry.context import Context, get_current
from opentelemetry.trace import INVALID_SPAN, Link, Span, set_span_in_context

from tenuto.graph.engine.cause import derived_category
from tenuto.graph.engine.scope import Scope
from tenuto.graph.events.node_event import Ending, FrameEvent, InvocationEvent, MetadataEvent, NodeEvent, Phase
from tenuto.observe.attributes import (
    cross_cutting,
    of_dispatched,
    of_invocation,
    of_node,
    of_place,
    of_suspension,
    user,
)
from tenuto.observe.open_spans import Kind, OpenSpans, Unsettled, category_within, links_to

INVOCATION = "openarmature.invocation"


class GraphSpans:
    """Makes the spans of graphs; see `OTelObserver`."""

    def __init__(self, spans: OpenSpans, detached: Collection[str]) -> None:
        self._all = spans
        self._detached = frozenset(detached)

    def take(self, event: NodeEvent | FrameEvent | InvocationEvent | MetadataEvent) -> None:
        """Begin or end the span that an event is about."""
        match event:
            case NodeEvent(phase=Phase.STARTED):
                if _key(event) not in self._all:
                    self._node_begins(event)
            case NodeEvent():
                self._node_ends(event)
            case FrameEvent(phase=Phase.STARTED):
                if event.frame not in self._all:
                    self._frame_begins(event)
            case FrameEvent():
                self._frame_ends(event)
            case InvocationEvent(phase=Phase.STARTED):
                if id(event.scope) not in self._all:
                    self._invocation_begins(event)
            case InvocationEvent():
                self._all.end(id(event.scope), Ending(event.phase), event.error, category_within(event.error))
            case MetadataEvent():
                self._metadata_added(event)

    def _invocation_begins(self, event: InvocationEvent) -> None:
        attributes = of_invocation(event.graph.entry, event.scope)
        span = self._span(INVOCATION, event.scope, attributes, get_current(), links_to(event.resumed_from))
        self._all.begin(id(event.scope), Kind.INVOCATION, (span,))

    def _frame_begins(self, event: FrameEvent) -> None:
        scope, graph = event.scope, event.frame.graph
        attributes = of_place(scope)
        if event.fan_out_index is None and event.branch_name is None:
            attributes["openarmature.subgraph.name"] = graph.name
            spans = self._spans(event.node_name, scope, attributes)
            if graph.name in self._detached:
                spans += self._apart(graph.name, graph.entry, scope, attributes, linked=spans[0])
            self._all.begin(event.frame, Kind.PLAIN, spans)
        else:
            spans = self._dispatched(
                event.branch_name or event.node_name, graph.entry, scope, attributes, event.node_name
            )
            self._all.begin(event.frame, Kind.FORK, spans)

    def _frame_ends(self, event: FrameEvent) -> None:
        opened = self._all.get(event.frame)
        ending = Ending(event.phase)
        if opened is None or opened.above is None or opened.kind is Kind.FORK or ending is not Ending.COMPLETED:
            self._all.end(event.frame, ending, event.error, category_within(event.error))
        else:
            self._all.settle(opened)
            opened.above.unsettled = Unsettled(event.node_name, opened.spans, time_ns())
            self._all.close(opened)

    def _node_begins(self, event: NodeEvent) -> None:
        scope, name = event.scope, event.node_name
        attributes = of_place(scope) | of_node(event)
        if event.fan_out_config or event.parallel_branches_config:
            self._all.begin(_key(event), Kind.DISPATCHER, self._spans(name, scope, attributes))
        elif self._is_call(event):
            self._all.begin(
                _key(event), Kind.FORK, self._dispatched(name, name, scope, attributes, event.namespace[-2])
            )
        else:
            self._all.begin(_key(event), Kind.PLAIN, self._spans(name, scope, attributes))

    def _node_ends(self, event: NodeEvent) -> None:
        key = _key(event)
        if event.phase == Phase.SUSPENDED:
            self._all.end(key, Ending.SUSPENDED, attributes=of_suspension(event.descriptor))
        elif event.error is None:
            self._all.end(key, Ending.COMPLETED)
        else:
            # What a node's own code raised has its own category; where others only pass it on, the carrier's.
            opened = self._all.get(key)
            own = opened is not None and opened.kind is Kind.PLAIN
            category = (derived_category(event.error) if own else None) or category_within(event.error)
            self._all.end(key, Ending.ERRORED, event.error, category)

    def _metadata_added(self, event: MetadataEvent) -> None:
        """Set metadata on the open spans of the line of execution that added it, never on those it shares with others.

        Nodes that dispatch are shared; so is the invocation, for what an instance or a branch adds.
        """
        attributes = user(event.values)
        shared = {Kind.DISPATCHER}
        if event.scope.fan_out_index is not None or event.scope.branch_name is not None:
            shared.add(Kind.INVOCATION)
        here = self._all.here
        while here is not None:
            if here.kind not in shared:
                for span in here.spans:
                    span.set_attributes(attributes)
            here = None if here.kind is Kind.INVOCATION else here.above

    def _is_call(self, event: NodeEvent) -> bool:
        """Return whether the event belongs to a branch or instance that is a function, for which no graph began."""
        frame = event.scope.frame
        return frame is not None and frame.parent is not None and frame not in self._all

    def _spans(self, name: str, scope: Scope, attributes: dict[str, Any]) -> tuple[Span, ...]:
        """Begin a span below what began last; a middleware's own spans are not part of the tree."""
        here = self._all.here
        above = get_current() if here is None else set_span_in_context(here.spans[-1], get_current())
        return (self._span(name, scope, attributes, above),)

    def _dispatched(
        self, name: str, entry: str, scope: Scope, attributes: dict[str, Any], dispatcher: str
    ) -> tuple[Span, ...]:
        """Begin the span of an instance or a branch, in a separate trace if its fan-out is detached."""
        attributes = attributes | of_dispatched(scope, dispatcher)
        here = self._all.here
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
        return self._all.tracer.start_span(name, context=above, attributes=attributes, links=links)


def _key(event: NodeEvent) -> Hashable:
    return event.scope.frame, event.namespace, event.attempt_index
