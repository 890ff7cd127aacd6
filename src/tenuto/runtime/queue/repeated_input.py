"""A message that was sent before, under its key: its sender gets the outcome there is, or a failed turn is resumed."""

from dataclasses import replace
from typing import Any

from tenuto.errors import LaneBusy
from tenuto.model.input import Input
from tenuto.model.lane import Lane
from tenuto.model.run import RunStatus
from tenuto.model.session import SessionKey
from tenuto.runtime.queue.dispatcher import Dispatcher
from tenuto.runtime.queue.sender import Sender
from tenuto.runtime.run.begin import TurnFactory
from tenuto.runtime.run.resume import resume_stopped
from tenuto.runtime.session.outcome import Outcome, Outcomes
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.replica import Replica
from tenuto.store.store import Store
from tenuto.words import RetryFailed, WhenBusy
from tenuto.writing.lane_claim import free_lane

_NEVER = "This runtime does not resume the turn of a repeated message (retry_failed='never'); call resume()."


class RepeatedInput:
    """Answers messages that were sent before and whose turn has begun; `retry_failed` decides about failed turns."""

    def __init__(
        self,
        store: Store,
        factory: TurnFactory,
        dispatcher: Dispatcher,
        sender: Sender,
        outcomes: Outcomes,
        retry_failed: RetryFailed,
    ) -> None:
        self._store = store
        self._outcomes = outcomes
        self._factory = factory
        self._dispatcher = dispatcher
        self._sender = sender
        self._retry_failed = retry_failed

    async def outcome(self, known: Input, when_busy: WhenBusy) -> Outcome[Any]:
        """Return the outcome of a message's turn; if it failed for a transient reason, resume it first.

        It is resumed only if it is still the session's last run; repeats that come at once share one run.
        """
        found = await self._outcomes.of_input(known.input_id, known.key.tenant)
        retries = self._retry_failed != "never"
        if retries and found.run_id is not None and found.status == "failed" and found.retryable and found.can_resume:
            turn = await self._resumed(known.key, found.run_id)
            if turn is not None:
                return replace(await self._dispatcher.run(turn), input_id=known.input_id)
        outcome = await self._sender.settled(known.key, known.input_id, when_busy)
        why = outcome.resume_refused if retries or not outcome.can_resume else _NEVER
        return replace(outcome, replayed=True, resume_refused=why)

    async def _resumed(self, key: SessionKey, failed: str) -> TurnContext | None:
        """Begin the run that resumes a failed one; None if another run began since, perhaps that of another repeat."""

        async def work(replica: Replica, lane: Lane) -> TurnContext | None:
            if replica.last_run != (failed, RunStatus.FAILED):
                await free_lane(self._store, lane)
                return None
            return await resume_stopped(self._factory, replica, lane)

        last = await self._store.runs.current(key)
        if last is None or last.run_id != failed:
            return None
        try:
            return await self._dispatcher.act(key, work, keeps_lane=True)
        except LaneBusy:
            return None
