"""The runtime for code without an event loop: what `with runtime.blocking() as rt` gives."""

from tenuto.runtime.blocking_face import (
    BlockingFork,
    BlockingOperator,
    BlockingRun,
    BlockingRuntime,
    BlockingSession,
    BlockingSessions,
)

__all__ = ["BlockingFork", "BlockingOperator", "BlockingRun", "BlockingRuntime", "BlockingSession", "BlockingSessions"]
