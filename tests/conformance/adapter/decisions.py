"""Where the accepted fixtures contradict each other: what this adapter decided, once, and why.

The letters are those of section 3.2 of the digest. A deviation is not a skip: the side that was chosen is checked
instead, and the runner prints the deviation beside the fixture.
"""

RECOVERED_ATTEMPT_KEEPS_ITS_ERROR = (
    "3.2-K: the completed event of an attempt that raised carries its error, even if a middleware outside recovered. "
    "PU-006 (expected_observer_event) wants a post_state there; PU-015, PU-061 and the isolation fixtures want the "
    "error. An event tells of the attempt, not of what was made of it, so the error is checked."
)

A_FAILED_RUN_FLUSHES_ITS_BUFFER = (
    "10.11.4: a run that fails writes the saves it has buffered before it ends; only a process that dies loses them. "
    "PU-054 lets an instance fail where it means a crash. Its record and its resume are checked with a store that "
    "takes nothing more from the run once the instance has failed."
)

CHILDREN_MAY_BE_LEFT_OUT = (
    "A list of a span's children is complete elsewhere, but OB-058 leaves out a node that runs. So nodes of the graph "
    "that a list does not name at all are not counted; a second span of a name in it, or one of no node, still is."
)
