"""Spans kept in memory under a provider of their own, and the trees they make."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from tenuto.observe.otel import INVOCATION, OTelObserver


@dataclass(slots=True)
class Branch:
    """A span and what is below it, in the order of their beginnings."""

    span: ReadableSpan
    below: "list[Branch]" = field(default_factory=list)

    def __iter__(self) -> "Iterator[Branch]":
        yield self
        for each in self.below:
            yield from each

    def __str__(self) -> str:
        name = "*" if self.span.name == INVOCATION else self.span.name
        return f"{name}({' '.join(map(str, self.below))})" if self.below else name

    def find(self, name: str) -> "Branch":
        """Return the one span of a name."""
        (found,) = [each for each in self if each.span.name == name]
        return found

    def said(self, name: str) -> Any:
        """Return an attribute, without the prefix they all have; None if it is not there."""
        return (self.span.attributes or {}).get(f"openarmature.{name}")

    @property
    def status(self) -> str:
        """The status code's name."""
        return self.span.status.status_code.name

    @property
    def exceptions(self) -> list[Any]:
        """The messages of the exceptions that are recorded on the span."""
        return [(e.attributes or {})["exception.message"] for e in self.span.events if e.name == "exception"]


class Spans:
    """Where an observer's spans go."""

    def __init__(self, detached: Collection[str] = (), sampler: Sampler | None = None, **options: Any) -> None:
        self._kept = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.reader = InMemoryMetricReader()
        meters = MeterProvider([self.reader])
        self.observer = OTelObserver(self.provider, detached=detached, meter_provider=meters, **options)

    @property
    def finished(self) -> list[ReadableSpan]:
        """All spans that have ended."""
        return list(self._kept.get_finished_spans())

    def traces(self) -> dict[int, list[Branch]]:
        """Return the roots of every trace."""
        return traces_of(self.finished)

    def roots(self) -> list[Branch]:
        """Return the roots of all traces."""
        return [root for roots in self.traces().values() for root in roots]

    def root(self) -> Branch:
        """Return the only root."""
        (root,) = self.roots()
        return root


def traces_of(finished: Iterable[ReadableSpan]) -> dict[int, list[Branch]]:
    """Return the roots of every trace, traces and siblings in the order of their beginnings.

    A span whose parent is not among them, because it has not ended or is another's, is a root.
    """
    spans = sorted(finished, key=lambda span: span.start_time or 0)
    branches = {_id(span): Branch(span) for span in spans}
    traces: dict[int, list[Branch]] = {}
    for span in spans:
        mine = branches[_id(span)]
        parent = branches.get((span.parent.trace_id, span.parent.span_id)) if span.parent else None
        if parent is not None:
            parent.below.append(mine)
        else:
            traces.setdefault(_id(span)[0], []).append(mine)
    return traces


def _id(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id
