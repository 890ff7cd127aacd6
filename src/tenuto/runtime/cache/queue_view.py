"""What a replica knows of its session's open input."""

from collections import deque
from dataclasses import dataclass, field

from tenuto.model.input import Input


@dataclass(slots=True)
class QueueView:
    """A session's open input for its next turns, in order; `more` says that this is only the first of it."""

    inputs: deque[Input] = field(default_factory=deque)
    more: bool = False
