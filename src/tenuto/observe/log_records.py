"""Log records with the ids of the invocation they belong to."""

import logging

from tenuto.graph.engine.scope import current_scope
from tenuto.observe.attributes import cross_cutting

try:
    from opentelemetry.trace import get_current_span
except ModuleNotFoundError:  # the extra is only needed for the ids of spans
    get_current_span = None  # type: ignore[assignment] # only where the extra is missing


class InvocationLogs(logging.Filter):
    """Adds the running invocation's ids and metadata, and the current span's ids, to records; passes all of them.

    Add it to a handler that is called where the log is written. Records of code outside an invocation get only the ids
    of a span. Formatters and exporters find the values as attributes of the record.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter.filter`."""
        scope = current_scope()
        if scope is not None:
            record.__dict__.update(cross_cutting(scope))
        if get_current_span is not None and (span := get_current_span().get_span_context()).is_valid:
            record.trace_id, record.span_id = f"{span.trace_id:032x}", f"{span.span_id:016x}"
        return True
