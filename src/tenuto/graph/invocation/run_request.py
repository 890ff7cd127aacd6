"""What the caller of `run` asks for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.argument import check_word
from tenuto.errors import InvalidInput
from tenuto.graph.events.event_queue import Subscription
from tenuto.words import OnMoved

UNSET: Any = object()
"""The payload if none was given; an empty one is a payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """The options of one invocation."""

    initial: Any = None
    observers: tuple[Subscription, ...] = ()
    stop: Callable[[], bool] | None = None
    step_limit: int
    tenant: str
    resume_invocation: str | None = None
    signal_payload: Any = UNSET
    on_moved: OnMoved | None = None

    @property
    def is_answer(self) -> bool:
        """Whether a suspended invocation is to be resumed, and not one that crashed."""
        return self.signal_payload is not UNSET

    def check(self) -> None:
        """Refuse options that cannot be combined."""
        if type(self.step_limit) is not int or self.step_limit < 1:
            raise InvalidInput(f"step_limit must be 1 or more, got {self.step_limit!r}.")
        if self.on_moved is not None:
            check_word(self.on_moved, OnMoved, "on_moved")
        if self.resume_invocation is not None and self.initial:
            raise InvalidInput("A resumed invocation starts from its record; give new values as signal_payload.")
        if self.resume_invocation is None and (self.is_answer or self.on_moved is not None):
            raise InvalidInput("signal_payload and on_moved belong to resume_invocation.")
        if self.is_answer and not isinstance(self.signal_payload, Mapping):
            raise InvalidInput(f"signal_payload is a mapping of fields, got {type(self.signal_payload).__name__}.")
