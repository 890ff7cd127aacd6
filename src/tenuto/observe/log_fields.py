"""Ids on every log record that is made within a turn or an invocation, whoever makes it and wherever it goes."""

import logging
import sys
from collections.abc import Callable
from typing import Any

from tenuto.writing.run_ids import run_ids

Factory = Callable[..., logging.LogRecord]


class LogFields:
    """What `install` did; `remove` undoes it, and so does the end of a `with` block."""

    def __init__(self, factory: Factory) -> None:
        self._former = factory
        self._active = True

    def __call__(self, *args: Any, **named: Any) -> logging.LogRecord:
        """Make a record as before, with the ids of the turn in which it is made."""
        record = self._former(*args, **named)
        if self._active and (ids := fields_here()):
            record.__dict__ = _Values(record.__dict__, ids)
        return record

    def remove(self) -> None:
        """Change no record from now on; a second call does nothing."""
        self._active = False
        if logging.getLogRecordFactory() is self:  # others that were set since keep this one, which adds nothing
            logging.setLogRecordFactory(self._former)

    def __enter__(self) -> "LogFields":
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class _Values(dict[str, Any]):
    """The attributes of a record, of which the ids may be given again: `extra=` refuses names that are there."""

    __slots__ = ("_ids",)

    def __init__(self, values: dict[str, Any], ids: dict[str, Any]) -> None:
        super().__init__({**ids, **values})
        self._ids = frozenset(ids) - values.keys()

    def __contains__(self, name: object) -> bool:
        return name not in self._ids and super().__contains__(name)


def install() -> LogFields:
    """Add ids to every log record of this process that is made within a turn or an invocation of a graph.

    They are attributes of the record: `session_id`, `tenant`, `run_id`, `invocation_id`, `correlation_id`, `attempt`
    and `program`; and `trace_id` and `span_id` of the current span, if there is one. Records made elsewhere are not
    changed, nor is an attribute that `extra=` or another record factory sets. A factory that was set before still makes
    the records.
    """
    fields = LogFields(logging.getLogRecordFactory())
    logging.setLogRecordFactory(fields)
    return fields


def fields_here() -> dict[str, Any]:
    """Return the ids of the run and the span that the running code belongs to."""
    ids = run_ids.get()
    found = {} if ids is None else {name: value for name, value in ids._asdict().items() if value is not None}
    return found | span_ids()


def span_ids() -> dict[str, str]:
    """Return the ids of the current span; none if there is none, or if OpenTelemetry is not in use."""
    trace = sys.modules.get("opentelemetry.trace")  # imported by whoever makes spans
    if trace is None:
        return {}
    span = trace.get_current_span().get_span_context()
    return {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"} if span.is_valid else {}
