"""The part of a turn that waits: for signals, approvals, children, and time."""

# ruff: noqa: ASYNC109 - a timeout is the wait's, not the call's

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from pydantic import TypeAdapter

from tenuto.errors import InvalidInput
from tenuto.messages.message import Sendable
from tenuto.runtime.calls import suspension
from tenuto.runtime.calls.wait_for import Approval, WaitFor, seconds_of
from tenuto.runtime.program.child_result import AskChild, ChildResult
from tenuto.runtime.turn.context import TurnContext
from tenuto.words import JSON, Seconds

if TYPE_CHECKING:
    from tenuto.runtime.program.program import Program

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
OutT = TypeVar("OutT")


class TurnWaits:
    """What a turn waits with. Nothing waits in memory: a turn that waits is over, and another one continues."""

    __slots__ = ()

    _context: TurnContext

    @overload
    async def wait(
        self,
        signal_id: str,
        *,
        returns: type[T] | TypeAdapter[T],
        timeout: Seconds | None = None,
        metadata: Mapping[str, JSON] | None = None,
    ) -> T: ...
    @overload
    async def wait(
        self,
        signal_id: str,
        *,
        kind: Literal["approval"],
        timeout: Seconds | None = None,
        metadata: Mapping[str, JSON] | None = None,
    ) -> Approval: ...
    @overload
    async def wait(
        self,
        signal_id: str,
        *,
        schema: Mapping[str, Any] | None = None,
        timeout: Seconds | None = None,
        metadata: Mapping[str, JSON] | None = None,
    ) -> JSON: ...
    async def wait(
        self,
        signal_id: str,
        *,
        returns: Any = None,
        kind: Any = "signal",
        schema: Mapping[str, Any] | None = None,
        timeout: Seconds | None = None,
        metadata: Mapping[str, JSON] | None = None,
    ) -> Any:
        """Return the answer to a wait; until there is one, the turn suspends here, and nothing waits in memory.

        It is a value of the type `returns`, or JSON that fits a JSON Schema, or, with `kind="approval"`, an `Approval`.
        When the program repeats the step, the first `wait` for a signal finds the first such wait of that step, the
        second the second. A wait that was not answered in time raises `WaitExpired`.
        """
        wanted: Any = WaitFor
        return suspension.wait_all(
            self._context,
            [wanted(signal_id, returns=returns, kind=kind, schema=schema, timeout=timeout, metadata=metadata)],
        )[0]

    @overload
    async def wait_all(self, one: WaitFor[T1], two: WaitFor[T2], /) -> tuple[T1, T2]: ...
    @overload
    async def wait_all(self, one: WaitFor[T1], two: WaitFor[T2], three: WaitFor[T3], /) -> tuple[T1, T2, T3]: ...
    @overload
    async def wait_all(
        self, one: WaitFor[T1], two: WaitFor[T2], three: WaitFor[T3], four: WaitFor[T4], /
    ) -> tuple[T1, T2, T3, T4]: ...
    @overload
    async def wait_all(self, *wanted: WaitFor[T]) -> tuple[T, ...]: ...
    async def wait_all(self, *wanted: Any) -> Any:
        """Return the answers to several waits, and the results of children; until all are there, the turn suspends."""
        if len(wanted) == 1 and not isinstance(wanted[0], WaitFor):
            raise InvalidInput("`wait_all` takes the waits one by one: wait_all(WaitFor(...), WaitFor(...)).")
        return suspension.wait_all(self._context, wanted)

    async def sleep(self, delay: Seconds, name: str = "sleep") -> None:
        """Sleep without a process: the turn suspends and a worker wakes it."""
        suspension.sleep(self._context, seconds_of(delay), name)

    @overload
    async def child(
        self,
        program: "Program[OutT]",
        message: Sendable,
        *,
        session_id: str | None = None,
        timeout: Seconds | None = None,
        name: str = "child",
    ) -> ChildResult[OutT]: ...
    @overload
    async def child(
        self,
        program: str,
        message: Sendable,
        *,
        session_id: str | None = None,
        timeout: Seconds | None = None,
        name: str = "child",
    ) -> ChildResult[JSON]: ...
    async def child(
        self,
        program: Any,
        message: Sendable,
        *,
        session_id: str | None = None,
        timeout: Seconds | None = None,
        name: str = "child",
    ) -> ChildResult[Any]:
        """Send a child session a message and return how its turn went; this turn suspends until then.

        The child is started after this turn's commit. Pass its `session_id` to send the same child another message,
        with its history.
        """
        asked = AskChild[Any](program, message, session_id=session_id, timeout=timeout, name=name)
        (result,) = suspension.wait_all(self._context, [asked])
        return cast("ChildResult[Any]", result)
