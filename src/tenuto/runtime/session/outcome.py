"""The outcome of a turn."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import Bucket, InvalidInput, RunFailed, TenutoError, bucket_of_record
from tenuto.model.event import EventType
from tenuto.model.input import Input, InputStatus
from tenuto.model.run import Run, RunStatus
from tenuto.model.session import LogEnd, Tenant
from tenuto.model.wait import Wait
from tenuto.runtime.session.session_view import MESSAGES
from tenuto.store.store import Store


class OutcomeStatus(StrEnum):
    """The status of an input: queued, running, or how its run ended."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    SUSPENDED = "suspended"
    CANCELLED = "cancelled"
    ROLLED_BACK = "rolled_back"
    EXECUTED = "executed"


FINAL = frozenset(OutcomeStatus) - {OutcomeStatus.QUEUED, OutcomeStatus.RUNNING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a turn, the same for every repeat of its message.

    `output` is what the program returned, or the text of its last message; `reply` is that message. `waits` are the
    open waits of a suspended run; `error` is plain data. An input that is still queued, or was refused, has no run.
    `version` is the session's version after the turn, if the turn ran here; it is not compared.
    """

    session_id: str
    status: OutcomeStatus
    run_id: str | None = None
    input_id: str | None = None
    output: JSON = None
    reply: Any = None
    error: Any = None
    waits: tuple[Wait, ...] = ()
    version: int | None = field(default=None, compare=False)

    @property
    def completed(self) -> bool:
        """Whether the turn completed."""
        return self.status is OutcomeStatus.COMPLETED

    @property
    def suspended(self) -> bool:
        """Whether the turn is suspended."""
        return self.status is OutcomeStatus.SUSPENDED

    @property
    def retryable(self) -> bool:
        """Whether the turn failed for a transient reason."""
        return bucket_of_record(self.error) is Bucket.RETRYABLE_TRANSIENT

    def result(self) -> JSON:
        """Return the output of a completed turn; raise `RunFailed` for any other."""
        if self.status in (OutcomeStatus.COMPLETED, OutcomeStatus.EXECUTED):
            return self.output
        error: Any = self.error or {}
        what = f"input {self.input_id}" if self.run_id is None else f"run {self.run_id}"
        raise RunFailed(
            f"The {what} of session {self.session_id!r} is {self.status}"
            + (f": {error.get('message')}" if error else "")
            + (f"; it waits for {', '.join(w.signal_id or w.kind for w in self.waits)}" if self.waits else "")
            + ".",
            run_id=self.run_id,
            status=str(self.status),
            error=self.error,
        )


class Outcomes:
    """Reads the outcomes of inputs and runs from the store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def of_input(self, input_id: str, tenant: Tenant) -> Outcome:
        """Return the status of an input of a tenant, or the outcome of its turn; `InvalidInput` if it is unknown."""
        found = await self.store.inbox.get(input_id, tenant=tenant)
        if found is None:
            return await self._of_first_run(await self.store.runs.get(input_id, tenant=tenant), input_id)
        session_id = found.key.session_id
        if found.status is InputStatus.OPEN or found.status is InputStatus.CANCELLED:
            status = OutcomeStatus.QUEUED if found.status is InputStatus.OPEN else OutcomeStatus.CANCELLED
            return Outcome(session_id=session_id, status=status, input_id=input_id)
        if found.status is InputStatus.REFUSED:
            return Outcome(session_id=session_id, status=OutcomeStatus.FAILED, input_id=input_id, error=found.error)
        if found.run_id is None:
            return await self._executed(found)
        return await self._of_first_run(await self.store.runs.get(found.run_id, tenant=found.key.tenant), input_id)

    async def _of_first_run(self, run: Run | None, input_id: str) -> Outcome:
        """Return the outcome of an input's turn from the last run of the invocation that consumed it."""
        rolled_back = run is not None and run.rolled_back
        if run is not None and run.status not in (RunStatus.RUNNING, RunStatus.COMPLETED):
            # It may have been resumed since, or be deleted concurrently.
            run = next(reversed(await self.store.runs.of_invocation(run.invocation_id, tenant=run.key.tenant)), None)
        if run is None:
            raise InvalidInput(f"There is no input {input_id}; it may have been pruned or deleted.", input_id=input_id)
        if rolled_back:
            session_id = run.key.session_id
            return Outcome(
                session_id=session_id, status=OutcomeStatus.ROLLED_BACK, run_id=run.run_id, input_id=input_id
            )
        return await self.of_run(run, input_id)

    async def of_run(self, run: Run, input_id: str | None = None) -> Outcome:
        """Return the outcome of a run from its record."""
        record: Any = run.outcome or {}
        reply = record.get("said")
        if "reply" in record:
            session, branch, position = record["reply"]
            with suppress(TenutoError):  # the entry was rewound and collected since
                end = LogEnd(session, branch, position + 1)
                found = await self.store.logs.read(run.key, MESSAGES, start=position, end=end)
                reply = found[0].value if found else reply
        waits = await self.store.waits.of_session(run.key, run_id=run.run_id)
        output = record.get("output", reply.get("content") if isinstance(reply, Mapping) else None)
        return Outcome(
            session_id=run.key.session_id,
            status=OutcomeStatus(str(run.status)),
            run_id=run.run_id,
            input_id=input_id,
            output=output,
            reply=reply,
            error=run.error,
            waits=tuple(waits) if run.status is RunStatus.SUSPENDED else (),
        )

    async def _executed(self, found: Input) -> Outcome:
        """Return the outcome of a command, which is recorded in the session's stream."""
        after = found.seq
        while True:
            page = await self.store.events.read(found.key, after=after)
            for event in page.events:
                data: Any = event.data
                if isinstance(data, Mapping) and data.get("input_id") == found.input_id:
                    if event.type == EventType.SESSION_ACTION_FAILED:
                        return _command_outcome(found, OutcomeStatus.FAILED, data.get("error"))
                    if event.type == EventType.SESSION_ACTION_EXECUTED:
                        return _command_outcome(found, OutcomeStatus.EXECUTED, None)
            if page.next == after or page.next >= page.tail:
                return _command_outcome(found, OutcomeStatus.EXECUTED, None)
            after = page.next


def _command_outcome(found: Input, status: OutcomeStatus, error: JSON) -> Outcome:
    return Outcome(session_id=found.key.session_id, status=status, input_id=found.input_id, error=error)
