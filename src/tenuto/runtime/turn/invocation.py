"""What a turn executes, and the two signals by which a program leaves it before its end."""

from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.codec import JSON
from tenuto.model.commit import OpenWait
from tenuto.model.wait import Wait


class TurnStopped(BaseException):
    """The run was asked to stop; not an error of the program, which therefore does not catch it by accident."""


class TurnSuspended(BaseException):
    """The program waits for something; the turn ends here and another one goes on."""

    def __init__(self, waits: Sequence[OpenWait], *, partial: bool) -> None:
        super().__init__()
        self.waits = tuple(waits)
        self.partial = partial


def signal_in(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """Return the signal among what the tasks of a program raised; it is how the program leaves its turn."""
    for kind in (TurnSuspended, TurnStopped):
        found: BaseException | None = group.subgroup(kind)
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        if found is not None:
            return found
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """What a turn executes: its identities, what began it, and what former runs of it left."""

    invocation_id: str
    origin_id: str
    correlation_id: str
    input: JSON = None
    input_id: str | None = None
    resumes: str | None = None
    steps_before: int = 0
    waits: tuple[Wait, ...] = ()
    reply_to: JSON = None
