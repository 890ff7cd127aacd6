"""What a case leaves in spans and logs: kept in memory under a provider of its own, run by run."""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from tenuto.graph.engine.scope import current_scope
from tenuto.observe.log_records import InvocationLogs
from tenuto.observe.otel import OTelObserver
from tests.conformance.adapter.vocabulary import mentioned
from tests.observe.trees import Branch, Spans, traces_of

LOGGER = "tests.conformance"
SPANS = (
    "detached_fan_outs",
    "detached_subgraphs",
    "determinism_check",
    "log_records",
    "no_edge_spans",
    "otel_spans",
    "parent_trace",
    "span_tree",
    "traces",
)
"""The words that ask for spans or logs without naming an observer."""
TRACER = "<spans>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A log record, and the place of the code that wrote it."""

    body: str
    attributes: dict[str, Any]
    namespace: tuple[str, ...]
    attempt_index: int


class Tracing(logging.Handler):
    """The spans of a case's observers, and its log lines; each belongs to the run in which it ended.

    `named` says that the case names an observer for its spans itself.
    """

    def __init__(self, detached: Collection[str] = (), named: bool = False) -> None:
        super().__init__()
        self.named = named
        self.bound: dict[str, str] = {}
        self.main = TRACER
        self._detached = frozenset(detached)
        self._spans: dict[str, Spans] = {}
        self._lines: list[Line] = []
        self._marks: list[tuple[dict[str, int], int]] = []
        self.addFilter(InvocationLogs())

    def __enter__(self) -> "Tracing":
        logger = logging.getLogger(LOGGER)
        self._level, self._propagate = logger.level, logger.propagate
        logger.addHandler(self)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        return self

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger(LOGGER)
        logger.removeHandler(self)
        logger.setLevel(self._level)
        logger.propagate = self._propagate

    def observer(self, name: str = TRACER) -> OTelObserver:
        """Return a new observer, whose spans are kept under its name; the first is the one a plain tree is about."""
        if not self._spans:
            self.main = name
        self._spans[name] = Spans(self._detached)
        return self._spans[name].observer

    def run_begins(self) -> None:
        """Say that what comes now is another run's."""
        self._marks.append(({name: len(spans.finished) for name, spans in self._spans.items()}, len(self._lines)))

    def spans(self, run: int, observer: str | None = None) -> list[ReadableSpan]:
        """Return the spans of a run."""
        name = observer or self.main
        following = self._marks[run + 1][0][name] if run + 1 < len(self._marks) else None
        return self._spans[name].finished[self._marks[run][0][name] : following]

    def traces(self, run: int, observer: str | None = None) -> dict[int, list[Branch]]:
        """Return the roots of each of a run's traces, the caller's first."""
        return traces_of(self.spans(run, observer))

    def lines(self, run: int) -> list[Line]:
        """Return the log lines of a run."""
        following = self._marks[run + 1][1] if run + 1 < len(self._marks) else None
        return self._lines[self._marks[run][1] : following]

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.emit`."""
        scope = current_scope()
        self._lines.append(
            Line(
                body=record.getMessage(),
                attributes=dict(record.__dict__),
                namespace=scope.namespace if scope else (),
                attempt_index=scope.attempt_index if scope else 0,
            )
        )


def tracing_of(case: dict[str, Any], invariants: Iterable[str] = ()) -> Tracing | None:
    """Return where a case's spans and logs go, if it asks for any, by itself or by one of these invariants."""
    named = any(isinstance(entry, dict) and entry.get("behavior") == "otel" for entry in case.get("observers") or [])
    if not named and not mentioned(case, (*SPANS, *invariants)):
        return None
    return Tracing([*case.get("detached_subgraphs", []), *case.get("detached_fan_outs", [])], named)
