"""What this adapter decided where fixtures contradict each other or leave something open, once, and why.

A deviation is not a skip: the side that was chosen is checked instead. It is made in the fixtures of `DEVIATIONS` and
in no others, and a fixture fails if its deviations are not exactly those that are listed for it.

What fixtures leave open is read like this:

- Checkpoints. A stored one is a cursor, a document and logs; it has no list of completed positions, and nothing of
  instances that had begun and left nothing. Both are put together from the node events before the save. The graph and
  the step in which the store has the run must agree with them; where instances and branches count steps too, the step
  is at least theirs. What is done of a fan-out is read from the store.
- Fan-outs. That of suspension/007 names no field to collect, since its suspend is refused before anything could be: it
  is declared with the first field of its subgraph. One that is given as an `inner_subgraph` alone collects the one
  field that its instances capture; with two such fields the fixture is refused.
- Loads of a session. The engine may look first whether it has to read at all, so reads of one session between two
  bodies or saves are one load. `no_session_load` and `store_untouched` count every call.
- Children of a dispatcher that failed. They are matched and not counted, as the vocabulary says: a failure cuts off
  whichever siblings still run.
"""

from enum import StrEnum


class Decision(StrEnum):
    """A side that was chosen against what a fixture says."""

    RECOVERED_ATTEMPT_KEEPS_ITS_ERROR = (
        "the completed event of an attempt that raised carries its error, even if a middleware outside recovered. "
        "This fixture wants a post_state there; pipeline-utilities/015, 061 and the isolation fixtures want the "
        "error. An event is about the attempt, not about what was made of it, so the error is checked."
    )
    A_FAILED_RUN_FLUSHES_ITS_BUFFER = (
        "a run that fails writes the saves it has buffered before it ends; only a process that dies loses them. This "
        "fixture lets an instance fail where it means a crash. Its record and its resume are checked with a store "
        "that takes nothing more from the run once the instance has failed."
    )
    CHILDREN_MAY_BE_LEFT_OUT = (
        "a list of a span's children names all of them, but this fixture leaves out a node that runs. Nodes of the "
        "graph that the list does not name at all are not counted; a second span of a name in it, or one of no node, "
        "still is."
    )


DEVIATIONS: dict[str, tuple[tuple[str, str, Decision], ...]] = {
    "observability/058-implementation-attribution-otel": (
        (
            "detached_subgraph_attribution_propagates_to_child_trace_invocation_span",
            "traces[0]/openarmature.invocation: ['after']",
            Decision.CHILDREN_MAY_BE_LEFT_OUT,
        ),
    ),
    "pipeline-utilities/006-middleware-error-recovery": (
        ("case", "expected_observer_event", Decision.RECOVERED_ATTEMPT_KEEPS_ITS_ERROR),
    ),
    "pipeline-utilities/054-checkpoint-fan-out-batching-buffered-saves-lost-on-crash": (
        (
            "buffered_saves_lost_resume_re_executes_no_double_merge",
            "the first run's record",
            Decision.A_FAILED_RUN_FLUSHES_ITS_BUFFER,
        ),
    ),
}
"""By fixture: the case, the place in it, and the side that is checked there."""
