"""Deliveries: items that commits sent to other sessions are delivered at least once, and taken exactly once.

To deliver is to enqueue, or to answer, under the outgoing item's own id, and then to mark it: after a crash in between,
the first part is repeated and changes nothing.
"""

import logging
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import (
    AlreadyAnswered,
    AnswerRefused,
    DeliveryLost,
    InvalidInput,
    OperationConflict,
    ProgramNotRegistered,
    SessionDeleted,
    SessionExists,
    SessionNotFound,
    StatusRefused,
    TenutoError,
)
from tenuto.model.input import InputKind, NewInput
from tenuto.model.outgoing_item import CHILD_LOST, OutboxKind, Outgoing, OutgoingStatus
from tenuto.model.run import Run, RunStatus, StopKind
from tenuto.model.schedule import NewSchedule
from tenuto.model.session import SessionKey
from tenuto.model.wait import Wait, WaitStatus
from tenuto.runtime.change.create import NewSession, SessionCreator
from tenuto.runtime.conversation.history import as_message
from tenuto.runtime.run.live_turns import LiveTurns
from tenuto.runtime.tree.answer import AnswerDesk
from tenuto.runtime.turn.debts import token_of
from tenuto.runtime.turn.invocation import start_point
from tenuto.store.store import Store
from tenuto.writing.error_record import error_record
from tenuto.writing.pages import all_inputs, all_sent

_log = logging.getLogger("tenuto.runtime")

FIRST_RETRY = 0.5
LONGEST_RETRY = 60.0
HOURLY = 3600.0
WINDOW = timedelta(days=1)
"""How long a delivery is tried before it expires; a wake is then tried hourly, since its session may stay closed."""

PATIENCE = timedelta(minutes=2)
"""How long a child's program may be unknown to every worker before the failure is reported to its parent."""


def pause_before(kind: str, attempts: int) -> float | None:
    """Return the pause after a failed try that was preceded by `attempts` others, or None if the item expires."""
    doublings = 7  # until the longest pause
    pause = min(FIRST_RETRY * 2.0 ** min(attempts, doublings), LONGEST_RETRY)
    tried = FIRST_RETRY * (2.0 ** min(attempts, doublings) - 1) + LONGEST_RETRY * max(attempts - doublings, 0)
    if tried < WINDOW.total_seconds():
        return pause
    return HOURLY if kind == OutboxKind.WAKE else None


class _NotTaken(Exception):
    """The target of queued input will never take it; `error` says why."""

    def __init__(self, error: TenutoError) -> None:
        super().__init__(error.message)
        self.error = error


class Deliveries:
    """Delivers pending items of the outbox."""

    def __init__(self, store: Store, live: LiveTurns, answers: AnswerDesk, creations: SessionCreator) -> None:
        self._store = store
        self._live = live
        self._answers = answers
        self._creations = creations

    async def deliver_due(self, limit: int = 100) -> int:
        """Deliver the items that are due; return how many were tried."""
        pending = await self._store.outbox.pending(limit=limit)
        for item in pending:
            await self.deliver(item)
        return len(pending)

    async def deliver(self, item: Outgoing) -> None:
        """Deliver one item and mark its status; a failed delivery is retried later, until its window ends."""
        if item.target.tenant != item.key.tenant:  # sent by an earlier version, which allowed it
            _log.error("Outgoing %s %s of %s for %s crosses tenants", item.kind, item.outbox_id, item.key, item.target)
            with suppress(DeliveryLost):
                await self._mark(item, OutgoingStatus.EXPIRED)
            return
        try:
            done = await self._hand_over(item)
        except _NotTaken as refusal:
            with suppress(DeliveryLost):
                await self._store.outbox.refuse(item, error_record(refusal.error))
            return
        except TenutoError as error:
            _log.warning("Delivery of %s %s to %s failed: %s", item.kind, item.outbox_id, item.target, error)
            done = False
        except Exception:
            _log.exception("Delivery of %s %s to %s failed", item.kind, item.outbox_id, item.target)
            done = False
        with suppress(DeliveryLost):  # another deliverer was there first
            if done:
                await self._mark(item, OutgoingStatus.DONE)
            elif (pause := pause_before(item.kind, item.attempts)) is None:
                if item.kind == OutboxKind.CHILD:
                    await self._report_lost(item, TenutoError("Its message could not be delivered in time."))
                await self._mark(item, OutgoingStatus.EXPIRED)
            else:
                await self._mark(item, OutgoingStatus.PENDING, retry_in=pause)

    async def _mark(self, item: Outgoing, status: OutgoingStatus, retry_in: float | None = None) -> None:
        await self._store.outbox.mark(
            item.outbox_id, status, attempts=item.attempts, retry_in=retry_in, tenant=item.key.tenant
        )

    async def _hand_over(self, item: Outgoing) -> bool:
        match item.kind:
            case OutboxKind.WAKE:
                return await self._wake(item)
            case OutboxKind.CHILD:
                return await self._begin_child(item)
            case OutboxKind.RESULT:
                return await self._bring_result(item)
            case OutboxKind.STOP:
                return await self._stop_child(item)
            case OutboxKind.INPUT:
                return await self._queue_input(item)
            case OutboxKind.WAITS:
                return await self._announce_waits(item)
            case OutboxKind.SCHEDULE:
                return await self._schedule(item)
            case _:
                _log.warning("Unknown outbox kind %r (%s)", item.kind, item.outbox_id)
                return False

    async def _wake(self, item: Outgoing) -> bool:
        try:
            await self._enqueue(item.target, InputKind.WAKE, item.body, item.outbox_id)
        except SessionNotFound:
            return True
        except StatusRefused:
            return False  # closed for now: it continues once it is resumed
        return True

    async def _queue_input(self, item: Outgoing) -> bool:
        body: Any = item.body
        due_at = datetime.fromisoformat(body["due_at"]) if "due_at" in body else None
        if "delay" in body:  # it counts from the commit that sent it
            due_at = item.created_at + timedelta(seconds=body["delay"])
        new = NewInput(
            kind=InputKind(body["kind"]),
            body=body["body"],
            key=body.get("key", item.outbox_id),
            due_at=due_at,
            input_id=item.outbox_id,
        )
        try:
            await self._store.inbox.enqueue(item.target, new)
        except (SessionNotFound, StatusRefused, OperationConflict, InvalidInput) as error:
            raise _NotTaken(error) from error
        return True

    async def _schedule(self, item: Outgoing) -> bool:
        body: Any = item.body
        try:
            if body["words"] is None:
                await self._store.schedules.remove(item.target, body["name"])
            else:
                await self._store.schedules.declare(item.target, NewSchedule(name=body["name"], **body["words"]))
        except (SessionNotFound, StatusRefused, InvalidInput) as error:
            raise _NotTaken(error) from error
        return True

    async def _announce_waits(self, item: Outgoing) -> bool:
        body: Any = item.body
        with suppress(SessionNotFound, SessionDeleted):
            await self._answers.announce(item.target, item.key, body["run_id"])
        return True

    async def _begin_child(self, item: Outgoing) -> bool:
        body: Any = item.body
        try:
            if await self._is_waited_for(item) is None:
                return True
            if body.get("again"):
                await self._check_child(item.target, body["parent"])
            else:
                await self._create_child(item.target, body, item.outbox_id)
            asker = {name: body[name] for name in ("parent", "token", "trace") if name in body}
            message = {"message": as_message(body["message"]), "for": asker}
            await self._enqueue(item.target, InputKind.MESSAGE, message, item.outbox_id)
        except ProgramNotRegistered as error:
            if await self._store.moment() - item.created_at < PATIENCE:
                return False  # another worker may have the program
            return await self._report_lost(item, error)
        except (SessionNotFound, StatusRefused, InvalidInput) as error:
            return await self._report_lost(item, error)
        return True

    async def _create_child(self, child: SessionKey, body: Any, operation_id: str) -> None:
        if await self._store.exists(child):
            return
        new = NewSession(
            program=body["program"],
            session_id=child.session_id,
            tenant=child.tenant,
            parent=body["parent"],
            operation_id=operation_id,
        )
        with suppress(SessionExists):
            await self._creations.create(new)

    async def _report_lost(self, item: Outgoing, error: TenutoError) -> bool:
        body: Any = item.body
        lost = {"category": CHILD_LOST, "message": f"The child could not be started: {error.message}"}
        return await self._answer_parent(item, body["parent"], body["token"], None, lost)

    async def _is_waited_for(self, item: Outgoing) -> Wait | None:
        """Return the wait that a child is started for, if it is still open."""
        body: Any = item.body
        wait = await self._wait_of(SessionKey(body["parent"], tenant=item.target.tenant), body["token"])
        return wait if wait is not None and wait.status is WaitStatus.OPEN else None

    async def _check_child(self, child: SessionKey, parent: str) -> None:
        head = await self._store.head(child)
        if head is None or head.profile.parent != parent:
            raise SessionNotFound(f"{parent!r} has no child {child} to send another message to.", key=child)

    async def _enqueue(self, target: SessionKey, kind: InputKind, body: Any, key: str) -> None:
        with suppress(OperationConflict):
            await self._store.inbox.enqueue(target, NewInput(kind=kind, body=body, key=key))

    async def _bring_result(self, item: Outgoing) -> bool:
        body: Any = item.body
        ended = {name: body.get(name) for name in ("result", "text")}
        return await self._answer_parent(item, item.target.session_id, body["token"], ended, body.get("error"))

    async def _answer_parent(self, item: Outgoing, parent: str, token: str, ended: JSON, error: JSON) -> bool:
        """Answer the wait of a parent; a parent that no longer waits receives a notice."""
        key = SessionKey(parent, tenant=item.target.tenant)
        wait = await self._wait_of(key, token)
        if wait is None:
            return True  # the parent is gone
        try:
            await self._answers.give(
                wait.wait_id,
                None if error is not None else ended,
                tenant=key.tenant,
                error=error,
                operation_id=f"answer:{item.outbox_id}",
                of_child=True,
            )
        except AlreadyAnswered:
            pass
        except AnswerRefused:
            return True
        with suppress(SessionNotFound):
            try:
                await self._enqueue(key, InputKind.WAKE, {"run_id": wait.run_id}, f"wake:{item.outbox_id}")
            except StatusRefused:
                return False
        return True

    async def _wait_of(self, parent: SessionKey, token: str) -> Wait | None:
        waits = await self._store.waits.of_session(parent, status=None)
        return next((each for each in waits if each.metadata.get("token") == token), None)

    async def _stop_child(self, item: Outgoing) -> bool:
        """Stop a child's work for a parent that no longer waits; return whether none of it runs or is queued."""
        body: Any = item.body
        child = item.target
        queued = [each async for each in all_inputs(self._store, child) if token_of(each.body) == body["token"]]
        if queued:
            await self._store.inbox.cancel(child, [each.input_id for each in queued])
        run = await self._store.runs.current(child)
        if run is None:
            return bool(queued) or not await self._is_to_begin(item)
        if await self._token_of_run(run) != body["token"]:
            return bool(queued) or not await self._is_to_begin(item)  # its last run is for another wait
        if run.status is RunStatus.RUNNING:
            await self._live.request_stop(child, run.run_id, StopKind.INTERRUPT, "its parent no longer waits")
            return True
        if run.status is RunStatus.SUSPENDED:
            await self._answers.abandon(run)
        return True

    async def _is_to_begin(self, item: Outgoing) -> bool:
        """Return whether the message to the child that is to stop has not been delivered yet."""
        stopped: Any = item.body
        async for each in all_sent(self._store, item.key):
            body: Any = each.body
            begins = (each.kind, each.status) == (OutboxKind.CHILD, OutgoingStatus.PENDING)
            if begins and body["token"] == stopped["token"]:
                return True
        return False

    async def _token_of_run(self, run: Run) -> str | None:
        point = await start_point(self._store, run)
        return token_of(point.cursor) if point else None
