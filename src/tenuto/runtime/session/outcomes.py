"""The outcomes of inputs and runs, read from their records; any process can read them."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import InvalidInput, TenutoError
from tenuto.model.event import EventType
from tenuto.model.input import Input, InputStatus
from tenuto.model.run import Run, RunStatus
from tenuto.model.session import LogEnd, Tenant
from tenuto.runtime.session.outcome import Outcome, OutcomeStatus
from tenuto.runtime.session.session_view import MESSAGES
from tenuto.store.store import Store


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
