"""The open input of a session, as far as its replica knows it."""

from collections import deque
from dataclasses import dataclass, field

from tenuto.model.input import Input


@dataclass(slots=True)
class QueueView:
    """A session's open input for its next turns, in order; `more` means that these are only the first."""

    inputs: deque[Input] = field(default_factory=deque)
    more: bool = False
