"""The waits that a program asks for, and those of its invocation that already exist."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import WaitExpired
from tenuto.messages.tool_result import not_executed, result_message
from tenuto.model.commit import OpenWait, Receipt
from tenuto.model.session import SessionKey
from tenuto.model.wait import Wait, WaitKind, WaitStatus

STEP = "/step"
"""The name under which a wait's metadata store the step that asked for it."""


PAUSED = "/paused"
"""The name under which the metadata of a wait for a time store the call that is then made again."""

ANSWERS_CALLS = (WaitKind.TOOL_RESULT, WaitKind.CHILD)
"""The kinds of waits whose answer is the result of a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRequest:
    """Something that a program needs before it can continue; `signal_id` is the program's own name for it."""

    signal_id: str
    kind: str = WaitKind.SIGNAL
    schema: JSON = None
    timeout: float | None = None
    deadline: datetime | None = None
    metadata: Mapping[str, JSON] = field(default_factory=dict)

    def opening(self, step: int | None = None) -> OpenWait:
        """Return the commit part that opens the wait; a program that repeats `step` finds the wait by it."""
        return OpenWait(
            kind=self.kind,
            signal_id=self.signal_id,
            deadline=self.deadline,
            timeout=self.timeout,
            schema=self.schema,
            metadata=dict(self.metadata) if step is None else {**self.metadata, STEP: step},
        )


class InvocationWaits:
    """The waits of one invocation, in the order they were opened.

    A program that repeats a step asks for its waits in the same order: its first request for a signal means the first
    such wait of that step.
    """

    def __init__(self, waits: Iterable[Wait] = ()) -> None:
        self._waits = list(waits)
        self._asked: dict[tuple[str, str | None, int], int] = {}

    def next(self, wanted: WaitRequest, step: int) -> Wait | None:
        """Return the wait that this request means, if it was opened before, and count the request."""
        found = self.peek(wanted, step)
        if found is not None:
            place = (wanted.kind, wanted.signal_id, step)
            self._asked[place] = self._asked.get(place, 0) + 1
        return found

    def peek(self, wanted: WaitRequest, step: int) -> Wait | None:
        """Return the wait that the next request will mean, if it was opened before."""
        place = (wanted.kind, wanted.signal_id, step)
        found = [wait for wait in self._waits if (wait.kind, wait.signal_id, wait.metadata.get(STEP)) == place]
        asked = self._asked.get(place, 0)
        return found[asked] if asked < len(found) else None

    def ask_again(self) -> None:
        """Let a program that runs again ask for its waits from the first one on."""
        self._asked.clear()

    def of_call(self, call_id: str, kind: str) -> Wait | None:
        """Return the last wait of a kind for a tool call."""
        found = [wait for wait in self._waits if wait.kind == kind and wait.metadata.get("call_id") == call_id]
        return found[-1] if found else None

    def pause_of(self, effect: str, making: int) -> Wait | None:
        """Return the wait for the time when a call that failed is made again."""
        found = (each for each in self._waits if each.metadata.get(PAUSED) == effect)
        return next((each for each in found if each.metadata.get("making") == making), None)

    def is_open(self, call_id: str) -> bool:
        """Return whether a tool call waits for an answer."""
        return any(wait.status is WaitStatus.OPEN and wait.metadata.get("call_id") == call_id for wait in self._waits)

    def called(self, step: int) -> bool:
        """Return whether a tool call of a step opened a wait."""
        return any(wait.metadata.get(STEP) == step and "call_id" in wait.metadata for wait in self._waits)

    def opened(
        self, wait_id: str, opened: OpenWait, key: SessionKey, run_id: str, invocation_id: str, receipt: Receipt
    ) -> None:
        """Note a wait that this turn has opened."""
        self._waits.append(
            Wait(
                wait_id=wait_id,
                key=key,
                run_id=run_id,
                invocation_id=invocation_id,
                kind=opened.kind,
                signal_id=opened.signal_id,
                status=WaitStatus.OPEN,
                deadline=opened.deadline,
                schema=opened.schema,
                metadata=opened.metadata,
                commit_number=receipt.commit_number,
                created_at=receipt.committed_at,
                settled_at=None,
            )
        )

    def of_run(self, run_id: str) -> list[Wait]:
        """Return the waits that a run opened."""
        return [wait for wait in self._waits if wait.run_id == run_id]

    def resumed(self, former: str, run_id: str, kept: Collection[str]) -> None:
        """Note that a run resumes a former one: it keeps these open waits, and the others have expired."""
        self._waits = [
            wait
            if wait.run_id != former or wait.status is not WaitStatus.OPEN
            else replace(wait, run_id=run_id)
            if wait.wait_id in kept
            else replace(wait, status=WaitStatus.EXPIRED)
            for wait in self._waits
        ]

    def open_calls(self) -> set[str]:
        """Return the tool calls with an open wait, or with an answer that this turn is to act on."""
        covering = (WaitStatus.OPEN, WaitStatus.ANSWERED)
        return {
            str(wait.metadata["call_id"])
            for wait in self._waits
            if "call_id" in wait.metadata
            and (wait.status in covering or (PAUSED in wait.metadata and wait.status is WaitStatus.EXPIRED))
        }


def answer_of(wait: Wait) -> JSON:
    """Return the answer to a wait; raise `WaitExpired` if it was not answered in time."""
    if wait.status is WaitStatus.ANSWERED:
        return wait.answer
    raise WaitExpired(
        f"{wait.signal_id or wait.kind!r} was not answered in time (wait {wait.wait_id} is {wait.status}).",
        wait_id=wait.wait_id,
        status=str(wait.status),
    )


def lets_call(wait: Wait) -> bool:
    """Return whether the answer to a wait lets a tool be called, so that nothing else has to be waited for."""
    answer: Any = wait.answer or {}
    if wait.status is not WaitStatus.ANSWERED or not {"call_id", "tool"} <= wait.metadata.keys():
        return False
    if wait.kind == WaitKind.APPROVAL:
        return bool(answer.get("approved"))
    return wait.kind == WaitKind.IN_DOUBT and answer.get("outcome") == "retry"


def is_answered_call(wait: Wait) -> bool:
    """Return whether the answer to a wait is the result of a tool call."""
    return wait.status is WaitStatus.ANSWERED and wait.kind in ANSWERS_CALLS and "call_id" in wait.metadata


def answer_message(wait: Wait) -> dict[str, Any]:
    """Return the result message of a call that was answered from outside, or not answered in time."""
    call_id = str(wait.metadata["call_id"])
    if wait.status is not WaitStatus.ANSWERED:
        return not_executed(call_id, "no answer came in time")
    answer: Any = wait.answer or {}
    said = answer.get("result")
    if said is None:
        said = answer.get("text")  # of a child whose program returned nothing
    return result_message(call_id, said, answer.get("error"))
