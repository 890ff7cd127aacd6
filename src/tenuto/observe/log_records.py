"""Log records with the attributes of spans, for one handler."""

import logging
from typing import Any

from tenuto.graph.engine.scope import current_scope
from tenuto.observe.attributes import cross_cutting, of_run
from tenuto.observe.log_fields import span_ids
from tenuto.writing.run_ids import run_ids


class InvocationLogs(logging.Filter):
    """Adds the running turn's or invocation's ids and metadata, and the current span's ids; passes all records.

    Add it to a handler that is called where the log is written. Records of code outside an invocation get only the ids
    of a span. Formatters and exporters find the values as attributes of the record.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter.filter`."""
        scope, ids = current_scope(), run_ids.get()
        found: dict[str, Any] = {} if scope is None else cross_cutting(scope)
        if ids is not None:
            found |= of_run(ids)
        record.__dict__.update(found | span_ids())
        return True
