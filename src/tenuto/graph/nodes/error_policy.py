"""What a node that runs several things at once does when one of them fails."""

from enum import StrEnum


class ErrorPolicy(StrEnum):
    """Cancel the others and fail, or let them finish and collect the errors."""

    FAIL_FAST = "fail_fast"
    COLLECT = "collect"
