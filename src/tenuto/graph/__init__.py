"""Graphs: typed state through async nodes, sessions and pauses that outlive an invocation."""

from tenuto.graph.blueprint.builder import GraphBuilder
from tenuto.graph.compiled_graph import CompiledGraph
from tenuto.graph.engine.suspend import save_session, suspend
from tenuto.graph.graph_end import END, End
from tenuto.graph.graph_outcome import GraphOutcome
from tenuto.graph.nodes.branches import Branch
from tenuto.graph.reducers import (
    append,
    bounded_append,
    concat_flatten,
    dedupe_append,
    last_write_wins,
    merge,
    merge_all,
    merge_by_key,
)
from tenuto.graph.runtime.node_turn import current_turn
from tenuto.graph.session.foreign_store import SessionStore
from tenuto.graph.signal import SignalDescriptor
from tenuto.graph.state import SessionState, State

__all__ = [
    "END",
    "Branch",
    "CompiledGraph",
    "End",
    "GraphBuilder",
    "GraphOutcome",
    "SessionState",
    "SessionStore",
    "SignalDescriptor",
    "State",
    "append",
    "bounded_append",
    "concat_flatten",
    "current_turn",
    "dedupe_append",
    "last_write_wins",
    "merge",
    "merge_all",
    "merge_by_key",
    "save_session",
    "suspend",
]
