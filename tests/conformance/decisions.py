"""Where the accepted fixtures contradict each other: what this adapter decided, once, and why.

The letters are those of section 3.2 of the digest. A deviation is not a skip: the side that was chosen is checked
instead, and the runner prints the deviation beside the fixture.
"""

RECOVERED_ATTEMPT_KEEPS_ITS_ERROR = (
    "3.2-K: the completed event of an attempt that raised carries its error, even if a middleware outside recovered. "
    "PU-006 (expected_observer_event) wants a post_state there; PU-015, PU-061 and the isolation fixtures want the "
    "error. An event tells of the attempt, not of what was made of it, so the error is checked."
)
