"""The outcome of a turn."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, cast, get_args

from typing_extensions import TypeVar

from tenuto.errors import Bucket, DeliveryLost, InvalidInput, RunFailed, TenutoError, bucket_of_record
from tenuto.messages.message import AssistantMessage, text_of
from tenuto.model.event import EventType
from tenuto.model.input import Input, InputStatus
from tenuto.model.outgoing_item import Outgoing, OutgoingStatus
from tenuto.model.run import Run, RunStatus
from tenuto.model.session import LogEnd, Tenant
from tenuto.model.wait import Wait
from tenuto.runtime.session.session_view import MESSAGES
from tenuto.store.store import Store
from tenuto.words import JSON, OutcomeStatus
from tenuto.writing.error_record import error_record

OutT_co = TypeVar("OutT_co", covariant=True, default=JSON)


RUN_ABORTED = "run_aborted"
"""The category of a run that was asked to abort: it is not resumed any more."""

ABORTED = "The run was aborted, which is final; send a new message."
"""Why an aborted run cannot be resumed."""

FINAL = frozenset(get_args(OutcomeStatus)) - {"queued", "running"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[OutT_co]):
    """The outcome of a turn, the same for every repeat of its message.

    `output` is what the program returned: of the type that its return annotation declares, or, if that program is not
    registered here or its type does not fit the stored value any more, the JSON that is stored. `reply` is the last
    message it said, and `text` that message's text. `waits` are the open waits of a suspended run; `error` is plain
    data. An input that is still queued, or was refused, has no run. `version` is the session's version after the turn,
    and `exception` what its program raised, if the turn ran here; `replayed` says that the message was sent before,
    `regenerated` that another turn took the place of the one it began, and `resume_refused` why a turn that did not
    complete cannot be resumed. These are not compared.
    """

    session_id: str
    status: OutcomeStatus
    run_id: str | None = None
    input_id: str | None = None
    output: OutT_co | None = None
    reply: AssistantMessage | None = None
    error: Any = None
    waits: tuple[Wait, ...] = ()
    version: int | None = field(default=None, compare=False)
    exception: BaseException | None = field(default=None, compare=False, repr=False)
    regenerated: bool = field(default=False, compare=False)
    replayed: bool = field(default=False, compare=False)
    resume_refused: str | None = field(default=None, compare=False)

    @property
    def text(self) -> str:
        """The text of the reply; empty if there is none."""
        return text_of(self.reply)

    @property
    def completed(self) -> bool:
        """Whether the turn completed."""
        return self.status == "completed"

    @property
    def suspended(self) -> bool:
        """Whether the turn is suspended."""
        return self.status == "suspended"

    @property
    def can_resume(self) -> bool:
        """Whether the turn failed or was interrupted and can be resumed; `resume_refused` says why not."""
        stopped = self.status in ("failed", "interrupted") and self.run_id is not None
        return stopped and self.resume_refused is None

    @property
    def retryable(self) -> bool:
        """Whether the turn failed for a transient reason."""
        return bucket_of_record(self.error) is Bucket.RETRYABLE_TRANSIENT

    def result(self) -> OutT_co:
        """Return what the program of a completed turn returned; raise `RunFailed` for any other turn."""
        if self.status in ("completed", "executed"):
            return cast("OutT_co", self.output)
        error: Any = self.error or {}
        what = f"input {self.input_id}" if self.run_id is None else f"run {self.run_id}"
        raise RunFailed(
            f"The {what} of session {self.session_id!r} is {self.status}"
            + (f": {str(error.get('message')).removesuffix('.')}" if error else "")
            + (f"; it waits for {', '.join(w.signal_id or w.kind for w in self.waits)}" if self.waits else "")
            + ".",
            run_id=self.run_id,
            status=self.status,
            error=self.error,
        ) from self.exception


def is_aborted(run: Run) -> bool:
    """Return whether a run was asked to abort."""
    error: Any = run.error or {}
    return run.status is RunStatus.FAILED and error.get("category") == RUN_ABORTED


class OutputReader(Protocol):
    """Knows the types of programs' outputs."""

    def read_output(self, returned_by: JSON, stored: JSON) -> Any:
        """Return a stored output as the type that the program it is of declares."""
        ...


class Outcomes:
    """Reads the outcomes of inputs and runs from the store."""

    def __init__(self, store: Store, outputs: OutputReader) -> None:
        self.store = store
        self._outputs = outputs

    async def of_input(self, input_id: str, tenant: Tenant) -> Outcome[Any]:
        """Return the status of an input of a tenant, or the outcome of its turn; `InvalidInput` if it is unknown."""
        found = await self.store.inbox.get(input_id, tenant=tenant)
        if found is None:
            if (sent := await self.store.outbox.get(input_id, tenant=tenant)) is not None:
                return await self._of_sent(sent)
            return await self._of_first_run(await self.store.runs.get(input_id, tenant=tenant), input_id)
        session_id = found.key.session_id
        if found.status is InputStatus.OPEN:
            return Outcome(session_id=session_id, status="queued", input_id=input_id)
        if found.status is InputStatus.CANCELLED:
            return Outcome(session_id=session_id, status="cancelled", input_id=input_id)
        if found.status is InputStatus.REFUSED:
            return Outcome(session_id=session_id, status="failed", input_id=input_id, error=found.error)
        if found.run_id is None:
            return await self._executed(found)
        run = await self.store.runs.get(found.run_id, tenant=found.key.tenant)
        return replace(await self._of_first_run(run, input_id), regenerated=found.regenerated)

    async def _of_sent(self, sent: Outgoing) -> Outcome[Any]:
        """Return the outcome of input that a program queued, by the id it was given then.

        Equal input under the same key may have been first at the target: its outcome is that of both.
        """
        body: Any = sent.body
        outcome: Outcome[Any] = Outcome(session_id=sent.target.session_id, status="queued", input_id=sent.outbox_id)
        if sent.status is OutgoingStatus.REFUSED:
            return replace(outcome, status="failed", error=body["error"])
        if sent.status is OutgoingStatus.EXPIRED:
            return replace(outcome, status="failed", error=error_record(DeliveryLost("It could not be delivered.")))
        if sent.status is not OutgoingStatus.DONE:
            return outcome
        first = await self.store.inbox.find(sent.target, body["key"]) if "key" in body else None
        if first is None:
            raise _unknown(sent.outbox_id)
        return await self.of_input(first.input_id, sent.target.tenant)

    async def _of_first_run(self, run: Run | None, input_id: str) -> Outcome[Any]:
        """Return the outcome of an input's turn from the last run of the invocation that consumed it."""
        rolled_back = run is not None and run.rolled_back
        if run is not None and run.status not in (RunStatus.RUNNING, RunStatus.COMPLETED):
            # It may have been resumed since, or be deleted concurrently.
            run = next(reversed(await self.store.runs.of_invocation(run.invocation_id, tenant=run.key.tenant)), None)
        if run is None:
            raise _unknown(input_id)
        if rolled_back:
            session_id = run.key.session_id
            return Outcome(session_id=session_id, status="rolled_back", run_id=run.run_id, input_id=input_id)
        return await self.of_run(run, input_id)

    async def of_run(self, run: Run, input_id: str | None = None) -> Outcome[Any]:
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
        return Outcome(
            session_id=run.key.session_id,
            status=run.status.value,
            run_id=run.run_id,
            input_id=input_id,
            output=self._outputs.read_output(record.get("by"), record.get("output")),
            reply=reply,
            error=run.error,
            waits=tuple(waits) if run.status is RunStatus.SUSPENDED else (),
            resume_refused=await self._resume_refused(run),
        )

    async def _resume_refused(self, run: Run) -> str | None:
        if run.status not in (RunStatus.FAILED, RunStatus.INTERRUPTED):
            return None
        if is_aborted(run):
            return ABORTED
        last = await self.store.runs.current(run.key)
        return None if last is not None and last.run_id == run.run_id else "Another turn has begun since."

    async def _executed(self, found: Input) -> Outcome[Any]:
        """Return the outcome of a command, which is recorded in the session's stream."""
        after = found.seq
        while True:
            page = await self.store.events.read(found.key, after=after)
            for event in page.events:
                data: Any = event.data
                if isinstance(data, Mapping) and data.get("input_id") == found.input_id:
                    if event.type == EventType.SESSION_ACTION_FAILED:
                        return _command_outcome(found, "failed", data.get("error"))
                    if event.type == EventType.SESSION_ACTION_EXECUTED:
                        return _command_outcome(found, "executed", None)
            if page.next == after or page.next >= page.tail:
                return _command_outcome(found, "executed", None)
            after = page.next


def _unknown(input_id: str) -> InvalidInput:
    return InvalidInput(f"There is no input {input_id}; it may have been pruned or deleted.", input_id=input_id)


def _command_outcome(found: Input, status: OutcomeStatus, error: JSON) -> Outcome[Any]:
    return Outcome(session_id=found.key.session_id, status=status, input_id=found.input_id, error=error)
