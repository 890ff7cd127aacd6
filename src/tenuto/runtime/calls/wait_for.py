"""What a program waits for, and the type of the answer it gets."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, cast, overload

from pydantic import TypeAdapter
from typing_extensions import TypeVar

from tenuto.argument import refuse
from tenuto.errors import InvalidInput
from tenuto.model.outgoing_item import NewOutgoing
from tenuto.model.wait import Wait, WaitKind
from tenuto.runtime.calls.answer_type import AnswerType, answer_type
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.invocation_waits import WaitRequest, answer_of
from tenuto.words import JSON, Seconds

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True, default=JSON)


@dataclass(frozen=True, slots=True)
class Approval:
    """Whether something was approved, and why, if the answer says it. It is true if it was approved."""

    approved: bool
    reason: str | None = None

    def __bool__(self) -> bool:
        return self.approved


class WaitFor(Generic[T_co]):
    """Something that a program needs before it can continue; `signal_id` is the program's own name for it.

    The answer is a value of the type `returns`, or JSON that fits the JSON Schema `schema`, or an `Approval`. After
    `timeout`, or at the `deadline`, `WaitExpired` is raised instead. `metadata` is for whoever answers.
    """

    __slots__ = ("_kind", "_parts", "_type")

    @overload
    def __init__(
        self,
        signal_id: str,
        *,
        returns: type[T_co] | TypeAdapter[T_co],
        timeout: Seconds | None = None,
        deadline: datetime | None = None,
        metadata: Mapping[str, JSON] | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: "WaitFor[Approval]",
        signal_id: str,
        *,
        kind: Literal["approval"],
        timeout: Seconds | None = None,
        deadline: datetime | None = None,
        metadata: Mapping[str, JSON] | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: "WaitFor[JSON]",
        signal_id: str,
        *,
        schema: Mapping[str, Any] | None = None,
        timeout: Seconds | None = None,
        deadline: datetime | None = None,
        metadata: Mapping[str, JSON] | None = None,
    ) -> None: ...
    def __init__(
        self,
        signal_id: str,
        *,
        returns: Any = None,
        kind: str = "signal",
        schema: Mapping[str, Any] | None = None,
        timeout: Seconds | None = None,
        deadline: datetime | None = None,
        metadata: Mapping[str, JSON] | None = None,
    ) -> None:
        if kind not in (WaitKind.SIGNAL, WaitKind.APPROVAL):
            refuse("kind", "'signal' or 'approval'", kind)
        if [returns is not None, schema is not None, kind == WaitKind.APPROVAL].count(True) > 1:
            raise InvalidInput(
                f"The answer to {signal_id!r} has a type (`returns`), a `schema`, or is an approval: give one."
            )
        self._type: AnswerType[Any] | None = None if returns is None else answer_type(returns)
        self._parts = WaitRequest(
            signal_id=signal_id,
            kind=str(kind),
            schema=schema if self._type is None else self._type.schema,
            timeout=seconds_of(timeout),
            deadline=deadline,
            metadata={} if metadata is None else metadata,
        )

    def __repr__(self) -> str:
        return f"<wait for {self._parts.signal_id}>"

    def _request(self, turn: TurnContext) -> tuple[WaitRequest, NewOutgoing | None]:  # noqa: ARG002
        """Return what the turn waits for, and what it sends in the commit that opens the wait."""
        return self._parts, None

    def _read(self, wait: Wait) -> T_co:
        """Return the value of a settled wait's answer; raise `WaitExpired` if it has none."""
        answer: Any = answer_of(wait)
        if self._parts.kind == WaitKind.APPROVAL:
            answer = Approval(answer["approved"], answer.get("reason"))
        elif self._type is not None:
            answer = self._type.read(wait, answer)
        return cast("T_co", answer)


def request_of(wanted: WaitFor[Any], turn: TurnContext) -> tuple[WaitRequest, NewOutgoing | None]:
    """Return what a turn waits for, and what it sends with that."""
    return wanted._request(turn)


def read_answer(wanted: WaitFor[T], wait: Wait) -> T:
    """Return the value of a settled wait's answer; raise `WaitExpired` if it has none."""
    return wanted._read(wait)


def seconds_of(given: Seconds | None) -> float | None:
    """Return a length of time in seconds."""
    return given.total_seconds() if isinstance(given, timedelta) else given
