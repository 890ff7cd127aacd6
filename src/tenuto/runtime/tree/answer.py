"""Answers to waits: bound to wait, kind and run, stored once, and with a separate error for each kind of refusal."""

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple

from tenuto.codec import JSON
from tenuto.errors import (
    AlreadyAnswered,
    AnswerInvalid,
    AnswerMismatch,
    AnswerRefused,
    LateAnswer,
    OperationConflict,
    SessionError,
    StoreError,
    TenutoError,
    WaitNotOpen,
    WaitUnknown,
)
from tenuto.ids import new_id
from tenuto.model.commit import Commit, Receipt, SettleWait
from tenuto.model.input import InputKind, NewInput
from tenuto.model.outgoing_item import NewOutgoing, OutboxKind, OutgoingStatus
from tenuto.model.run import Run, RunStatus
from tenuto.model.session import SessionKey, Tenant
from tenuto.model.wait import Wait, WaitKind, WaitStatus
from tenuto.quote import quote
from tenuto.runtime.session.ancestry import stands_above
from tenuto.runtime.session.outcome import Outcome, Outcomes, OutT_co
from tenuto.runtime.stream.notices import Listeners, WaitOpened, WaitSettled
from tenuto.runtime.tree.answer_form import checked, refuse_foreign, same_json
from tenuto.runtime.tree.graph_pause import GraphPauses
from tenuto.runtime.turn.debts import abandon_waits, notice_body
from tenuto.runtime.turn.invocation_waits import lets_call
from tenuto.store.store import Store
from tenuto.words import AnswerEffect
from tenuto.writing.lost_reply import ask_again


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Generic[OutT_co]):
    """An accepted answer, and what follows from it.

    The session `continues` here, with its `outcome`, or on a `worker`, if no other wait is open, or if a tool was
    approved, which is then called; while it is only `waiting`, nothing happens. `open_waits` are the waits that are
    left. `replayed` says that the same answer was stored before.
    """

    wait_id: str
    session_id: str
    run_id: str
    continues: AnswerEffect
    open_waits: tuple[Wait, ...] = ()
    outcome: Outcome[OutT_co] | None = None
    replayed: bool = False


class Stored(NamedTuple):
    """A stored answer: what follows from it, and the outbox ids of its wakes."""

    answered: Answered[Any]
    key: SessionKey
    invocation_id: str
    wakes: tuple[str, ...]


class AnswerDesk:
    """Stores answers, abandons waits that need no answer any more, and refuses late answers."""

    def __init__(self, store: Store, listeners: Listeners, pauses: GraphPauses, outcomes: Outcomes) -> None:
        self._store = store
        self._listeners = listeners
        self._pauses = pauses
        self._outcomes = outcomes

    async def give(
        self,
        wait_id: str,
        value: JSON,
        *,
        tenant: Tenant,
        error: JSON = None,
        kind: str | None = None,
        run_id: str | None = None,
        session: SessionKey | None = None,
        operation_id: str | None = None,
        of_child: bool = False,
        here: bool = True,
    ) -> Stored:
        """Store the answer to a wait of a tenant; `of_child` says that it is the child's own.

        A graph's pause is answered by resuming the graph, which has to happen `here`.

        `kind`, `run_id` and `session` (the wait's own, or an ancestor of it) are checked if passed; a mismatch raises
        `AnswerMismatch`. The same operation again, or an equal answer, is the same success. Unknown, other and late
        answers raise `WaitUnknown`, `AlreadyAnswered` and `LateAnswer`.
        """
        wait = await self._store.waits.get(wait_id, tenant=tenant) if wait_id else None
        if wait is None:
            raise WaitUnknown(f"There is no wait {wait_id!r}; it may have been deleted.", wait_id=wait_id)
        await self._check_bound(wait, kind, run_id, session)
        if not of_child:
            refuse_foreign(wait)
        run = await self._store.runs.get(wait.run_id, tenant=wait.key.tenant)
        received = value if error is None else error
        if run is None or (wait.status is not WaitStatus.ANSWERED and not _takes_answers(wait, run)):
            raise await self._refusal(wait, received)
        if wait.graph is not None:
            return await self._resumed_pause(wait, run, value, error, here=here)
        if wait.status is WaitStatus.ANSWERED and operation_id is None:
            return await self._repeated(wait, run, value, error)
        answer = checked(wait, value, error)
        if wait.status is WaitStatus.OPEN:
            await self._pauses.check(wait, answer)
        notice = WaitSettled(key=wait.key, wait_id=wait_id, kind=wait.kind, status=str(WaitStatus.ANSWERED))
        wake = NewOutgoing(kind=OutboxKind.WAKE, target=wait.key, body={"run_id": run.run_id})
        commit = Commit(
            key=wait.key,
            operation_id=operation_id or new_id(),
            life=run.life,
            settle_waits=(SettleWait(wait_id=wait_id, status=WaitStatus.ANSWERED, answer=answer, late=True),),
            events=(notice.event(),),
            outgoing=(wake,),
        )
        receipt, is_open = None, True
        try:
            receipt = await self._committed(commit)
        except WaitNotOpen:
            is_open = False
        except OperationConflict:
            pass  # the same key with another value
        if receipt is None or receipt.replayed:
            now = await self._store.waits.get(wait_id, tenant=wait.key.tenant) or wait
            if is_open:
                return await self._replayed(now, run)
            if now.status is WaitStatus.ANSWERED:
                return await self._repeated(now, run, value, error)
            raise await self._refusal(now, received)
        await self._listeners.tell(notice)
        left = await self._store.waits.of_session(wait.key, run_id=wait.run_id)
        calls = lets_call(replace(wait, status=WaitStatus.ANSWERED, answer=answer))
        answered = Answered(
            wait_id=wait_id,
            session_id=wait.key.session_id,
            run_id=wait.run_id,
            continues="waiting" if left and not calls else "worker",
            open_waits=tuple(left),
        )
        return Stored(answered, wait.key, run.invocation_id, receipt.outgoing_ids)

    async def _resumed_pause(self, wait: Wait, run: Run, value: JSON, error: JSON, *, here: bool) -> Stored:
        """Answer the pause of a graph.

        The same answer again returns how the graph has continued, or takes over from a runner that is gone.
        """
        if wait.status is WaitStatus.ANSWERED:
            before = await self._repeated(wait, run, value, error)
            if before.answered.outcome is not None:
                return before
        outcome = await self._pauses.resume(wait, checked(wait, value, error), here=here)
        if outcome is None:
            now = await self._store.waits.get(wait.wait_id, tenant=wait.key.tenant)
            return await self._repeated(now or wait, run, value, error)
        answered: Answered[Any] = Answered(
            wait_id=wait.wait_id,
            session_id=wait.key.session_id,
            run_id=wait.run_id,
            continues="here",
            open_waits=outcome.waits,
            outcome=outcome,
            replayed=wait.status is WaitStatus.ANSWERED,
        )
        return Stored(answered, wait.key, run.invocation_id, ())

    async def _repeated(self, wait: Wait, run: Run, value: JSON, error: JSON) -> Stored:
        """Return the success of the answer that stands, if this one is equal to it; refuse any other."""
        with suppress(AnswerInvalid):
            if same_json(checked(wait, value, error), wait.answer):
                return await self._replayed(wait, run)
        raise AlreadyAnswered(
            f"Wait {wait.wait_id} of {wait.key} is already answered, in another way; the first answer is kept.",
            wait_id=wait.wait_id,
        )

    async def _replayed(self, wait: Wait, run: Run) -> Stored:
        """Return the success of an answer that was stored before, and how its run has continued."""
        left = await self._store.waits.of_session(wait.key, run_id=wait.run_id)
        last = (await self._store.runs.of_invocation(run.invocation_id, tenant=wait.key.tenant))[-1]
        answered: Answered[Any] = Answered(
            wait_id=wait.wait_id,
            session_id=wait.key.session_id,
            run_id=wait.run_id,
            continues="waiting" if left and not lets_call(wait) else "worker",
            open_waits=tuple(left),
            replayed=True,
        )
        waits_on = last.run_id == wait.run_id and last.status is RunStatus.SUSPENDED
        if last.status is not RunStatus.RUNNING and not waits_on:
            outcome = await self._outcomes.of_run(last)
            answered = replace(answered, continues="here", open_waits=outcome.waits, outcome=outcome)
        return Stored(answered, wait.key, run.invocation_id, ())

    async def with_outcome(self, stored: Stored, outcome: Outcome[Any] | None) -> Answered[Any]:
        """Return an answer whose session was resumed here, with the outcome; its wake is no longer needed.

        Without an `outcome`, another runner resumed the run meanwhile, and the outcome is read from its record.
        """
        for wake in stored.wakes:
            with suppress(TenutoError):
                await self._store.outbox.mark(wake, OutgoingStatus.DONE, tenant=stored.key.tenant)
        if outcome is None:
            runs = await self._store.runs.of_invocation(stored.invocation_id, tenant=stored.key.tenant)
            outcome = await self._outcomes.of_run(runs[-1])
        return replace(stored.answered, continues="here", open_waits=outcome.waits, outcome=outcome)

    async def announce(self, root: SessionKey, below: SessionKey, run_id: str) -> None:
        """Say in a root's stream what a run below it waits for and can be answered by somebody; each wait once."""
        head = await self._store.head(root)
        if head is None:
            return
        for wait in await self._store.waits.of_session(below, run_id=run_id):
            if wait.kind in (WaitKind.CHILD, WaitKind.TIME):
                continue
            notice = WaitOpened(
                key=root, child=below.session_id, wait_id=wait.wait_id, kind=wait.kind, signal_id=wait.signal_id
            )
            operation_id = f"opened:{wait.wait_id}"
            commit = Commit(key=root, operation_id=operation_id, life=head.life, events=(notice.event(),))
            if not (await self._committed(commit)).replayed:
                await self._listeners.tell(notice)

    async def abandon_last(self, key: SessionKey) -> int:
        """Abandon all open waits of a session's last run, and return how many there were."""
        while (run := await self._store.runs.current(key)) is not None:
            with suppress(WaitNotOpen):  # raced with an answer: retry
                return await self.abandon(run)
        return 0

    async def abandon(self, run: Run) -> int:
        """Abandon all open waits of a run in one commit, and return how many there were; later answers are late."""
        waits = await self._store.waits.of_session(run.key, run_id=run.run_id)
        settled, owed = abandon_waits(waits, run.key.tenant)
        if settled:
            commit = Commit(
                key=run.key, operation_id=new_id(), life=run.life, settle_waits=tuple(settled), outgoing=tuple(owed)
            )
            await self._store.commit(commit)
        return len(settled)

    async def _committed(self, commit: Commit) -> Receipt:
        """Commit an answer; if the reply is lost, repeat the same operation, which is then not a repeat of another."""
        try:
            return await self._store.commit(commit)
        except StoreError as error:
            return replace(await ask_again(error, lambda: self._store.commit(commit)), replayed=False)

    async def _check_bound(self, wait: Wait, kind: str | None, run_id: str | None, session: SessionKey | None) -> None:
        if kind is not None and kind != wait.kind:
            raise _mismatch(wait, "kind", wait.kind, kind)
        if (
            run_id is not None
            and run_id != wait.run_id
            and not await self._is_resumed_by(run_id, wait.run_id, wait.key)
        ):
            raise _mismatch(wait, "run", wait.run_id, run_id)
        if session is None or session == wait.key:
            return
        if not await stands_above(self._store, session, wait.key):
            raise _mismatch(wait, "session", wait.key.session_id, session.session_id)

    async def _is_resumed_by(self, former: str, run_id: str, key: SessionKey) -> bool:
        """Return whether a run resumes a former one: it has taken over the waits that were open then."""
        runs = [await self._store.runs.get(each, tenant=key.tenant) for each in (former, run_id)]
        return len({run.invocation_id if run else each for run, each in zip(runs, (former, run_id), strict=True)}) == 1

    async def _refusal(self, wait: Wait, received: JSON) -> AnswerRefused:
        """Return the refusal of an answer; the first late answer leaves a notice for the model."""
        run = await self._store.runs.get(wait.run_id, tenant=wait.key.tenant)
        if wait.status is not WaitStatus.OPEN or run is None:
            state, why = str(wait.status), f"is {wait.status}"
        else:
            state, why = f"of a run that {run.status}", f"belongs to a run that is already {run.status}"
        if wait.graph is None:
            await self._leave_notice(wait, why, received)
        return LateAnswer(
            f"Wait {wait.wait_id} of {wait.key} {why}; the answer came too late and was not used.",
            wait_id=wait.wait_id,
            found=state,
        )

    async def _leave_notice(self, wait: Wait, why: str, received: JSON) -> None:
        """Report a late answer to the next model call, once; the answer itself is only in the notice's data."""
        name = wait.signal_id or wait.kind
        text = f"An answer to {name!r} (wait {wait.wait_id}) came too late and was not used: its wait {why}."
        body = notice_body(text, received, wait_id=wait.wait_id)
        new = NewInput(kind=InputKind.WAKE, body=body, key=f"late:{wait.wait_id}")
        with suppress(SessionError):  # another late answer was first, or the session is closed and has no reader
            await self._store.inbox.enqueue(wait.key, new)


def _takes_answers(wait: Wait, run: Run) -> bool:
    return wait.status is WaitStatus.OPEN and run.status in (RunStatus.SUSPENDED, RunStatus.RUNNING)


def _mismatch(wait: Wait, what: str, expected: str, given: str) -> AnswerMismatch:
    return AnswerMismatch(
        f"Wait {wait.wait_id} belongs to {what} {expected!r}, the answer to {quote(given)}; nothing was stored.",
        wait_id=wait.wait_id,
        expected=expected,
        given=given,
    )
