"""Middleware: what runs around a node, an instance or a branch."""

from tenuto.graph.engine.node import Middleware
from tenuto.graph.middleware.isolation import FailureIsolation
from tenuto.graph.middleware.node_retry import Retry, full_jitter, is_transient
from tenuto.graph.middleware.timing import Timing, TimingRecord

__all__ = ["FailureIsolation", "Middleware", "Retry", "Timing", "TimingRecord", "full_jitter", "is_transient"]
