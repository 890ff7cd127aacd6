"""A child that a program asks, and how its turn went."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, cast, overload

from typing_extensions import TypeVar

from tenuto.errors import ChildFailed
from tenuto.messages.message import Sendable
from tenuto.model.outgoing_item import NewOutgoing
from tenuto.model.wait import Wait
from tenuto.runtime.calls.arguments import check_child
from tenuto.runtime.calls.suspension import spawning
from tenuto.runtime.calls.wait_for import WaitFor, seconds_of
from tenuto.runtime.program.output_form import read_output
from tenuto.runtime.program.program_name import full_name
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.invocation_waits import WaitRequest, answer_of
from tenuto.store.bounds import check_name, check_timeout
from tenuto.words import JSON, Seconds

if TYPE_CHECKING:
    from tenuto.runtime.program.program import Program

OutT = TypeVar("OutT")
OutT_co = TypeVar("OutT_co", covariant=True, default=JSON)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildResult(Generic[OutT_co]):
    """How a child's turn went: what its program returned and what it said last, or the error it ended with.

    `session_id` is the child's: with it, the same child can be asked again.
    """

    session_id: str
    output: OutT_co | None = None
    text: str = ""
    error: Mapping[str, JSON] | None = None

    def result(self) -> OutT_co:
        """Return what the child's program returned; raise `ChildFailed` if its turn did not complete."""
        if self.error is not None:
            raise ChildFailed(
                f"The child {self.session_id!r} failed: {self.error.get('message') or self.error.get('category')}",
                session_id=self.session_id,
                error=self.error,
            )
        return cast("OutT_co", self.output)


class AskChild(WaitFor[ChildResult[OutT]], Generic[OutT]):
    """A question to a child session, for `wait_all`; see `Turn.child`."""

    __slots__ = ("_message", "_program", "_session_id")

    @overload
    def __init__(
        self,
        program: "Program[OutT]",
        message: Sendable,
        *,
        session_id: str | None = None,
        timeout: Seconds | None = None,
        name: str = "child",
    ) -> None: ...
    @overload
    def __init__(
        self: "AskChild[JSON]",
        program: str,
        message: Sendable,
        *,
        session_id: str | None = None,
        timeout: Seconds | None = None,
        name: str = "child",
    ) -> None: ...
    def __init__(
        self,
        program: Any,
        message: Sendable,
        *,
        session_id: str | None = None,
        timeout: Seconds | None = None,
        name: str = "child",
    ) -> None:
        check_name(name, "name")
        begin: Any = super().__init__
        begin(name, timeout=timeout)
        self._program, self._message, self._session_id = program, message, session_id

    def _request(self, turn: TurnContext) -> tuple[WaitRequest, NewOutgoing | None]:
        called, within = full_name(self._program), seconds_of(self._parts.timeout)
        check_child(called, self._message, self._parts.signal_id, None, turn.writer.store.budget)
        if within is not None:
            check_timeout(within)
        return spawning(
            turn, called, self._message, session_id=self._session_id, seconds=within, name=self._parts.signal_id
        )

    def _read(self, wait: Wait) -> ChildResult[OutT]:
        answer: Any = answer_of(wait)
        child = str(wait.metadata["child"])
        if "error" in answer:
            return ChildResult(session_id=child, error=answer["error"])
        output = read_output(self._program, answer.get("result"))
        return ChildResult(session_id=child, output=output, text=answer.get("text") or "")
