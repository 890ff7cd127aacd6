"""The ids of the run that the running code belongs to, for log records and observers."""

from contextvars import ContextVar
from typing import NamedTuple


class RunIds(NamedTuple):
    """The ids of a turn of the runtime, or of a graph that runs by itself, which has no run id, attempt or program.

    `program` is the program's name and version.
    """

    session_id: str | None
    tenant: str
    run_id: str | None
    invocation_id: str
    correlation_id: str
    attempt: int | None = None
    program: str | None = None


run_ids: ContextVar[RunIds | None] = ContextVar("tenuto_run_ids", default=None)
"""The innermost run around the running code, also in its tools, their threads and the tasks that it starts."""


def ids_within(invocation_id: str, correlation_id: str, session_id: str | None, tenant: str) -> RunIds:
    """Return the ids of a graph that begins to run here; without a session it belongs to the run around it."""
    around = run_ids.get()
    if session_id is None and around is not None:
        return around._replace(invocation_id=invocation_id, correlation_id=correlation_id)
    return RunIds(session_id, tenant, None, invocation_id, correlation_id)
