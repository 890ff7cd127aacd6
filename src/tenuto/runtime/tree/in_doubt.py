"""Calls in doubt, and how they are settled from outside."""

from tenuto.codec import JSON, dumps
from tenuto.errors import EffectNotOpen, VersionConflict
from tenuto.ids import new_id
from tenuto.model.commit import Commit
from tenuto.model.effect import Effect, SettleEffect
from tenuto.model.outgoing_item import NewOutgoing, OutboxKind
from tenuto.model.run import RunStatus
from tenuto.model.session import SessionKey
from tenuto.model.wait import Wait, WaitKind
from tenuto.runtime.stream.notices import EffectSettled, Listeners
from tenuto.runtime.tree.answer import AnswerDesk
from tenuto.runtime.tree.answer_form import error_data
from tenuto.runtime.tree.delivery import Deliveries
from tenuto.runtime.turn.debts import notice_body
from tenuto.runtime.turn.effect_journal import Place
from tenuto.store.store import Store
from tenuto.writing.pages import all_effects


class InDoubtCalls:
    """Lists and settles calls in doubt: it is unknown whether they were carried out."""

    def __init__(self, store: Store, listeners: Listeners, answers: AnswerDesk, deliveries: Deliveries) -> None:
        self._store = store
        self._listeners = listeners
        self._answers = answers
        self._deliveries = deliveries

    async def of_session(self, key: SessionKey) -> tuple[Effect, ...]:
        """Return a session's calls in doubt."""
        return await all_effects(self._store, key, in_doubt=True)

    async def settle(self, effect: Effect, *, result: JSON, error: JSON) -> None:
        """Answer the run that asks about a call, or settle the call on record and leave a notice for the model.

        While a run that resumed the call's invocation is running, only that run decides: this raises `EffectNotOpen`,
        and so does a call that is not in doubt.
        """
        dumps(result, "result")
        dumps(error, "error")
        place = Place(effect.namespace, effect.step, effect.effect_key)
        outcome = "done" if error is None else "failed"
        while True:
            head = await self._store.head(effect.key)
            wait = await self._asking_about(effect, place)
            if wait is not None:
                said = {"outcome": outcome, "result": result} if error is None else {"outcome": outcome, "error": error}
                await self._answers.give(wait.wait_id, said, tenant=effect.key.tenant, kind=wait.kind)
                return
            if not any(_is_same(each, effect) for each in await self.of_session(effect.key)):
                raise _not_open(effect, place, "not in doubt: it returned, was settled, or is running")
            if await self._is_resumed(effect):
                raise _not_open(effect, place, "not in doubt: the run that resumed it is running, and decides")
            try:
                await self._record(effect, place, outcome, result, error, at=head.commit_number if head else None)
            except VersionConflict:
                continue  # something was committed since the read: perhaps a run began
            return

    async def _is_resumed(self, effect: Effect) -> bool:
        """Return whether a run of the effect's origin is running; it has read the journal before this decision."""
        runs = await self._store.runs.of_session(effect.key)
        return any(run.status is RunStatus.RUNNING and run.origin_id == effect.origin_id for run in runs)

    async def _record(
        self, effect: Effect, place: Place, outcome: str, result: JSON, error: JSON, *, at: int | None
    ) -> None:
        """Settle a call in one commit with the wake that reports it to the model, and deliver the wake at once.

        The session must still be at the commit number `at`; otherwise `VersionConflict` is raised.
        """
        notice = EffectSettled(key=effect.key, effect=str(place), outcome=outcome)
        settle = SettleEffect(
            key=place.key,
            step=place.step,
            namespace=place.namespace,
            origin_id=effect.origin_id,
            result=result,
            error=None if error is None else error_data(error),
        )
        text = f"The call {effect.call_id or effect.effect_key!r}, whose outcome was unknown, was settled as {outcome}."
        body = notice_body(text, {"result": result} if error is None else {"error": error}, effect=place.record())
        commit = Commit(
            key=effect.key,
            operation_id=new_id(),
            life=effect.life,
            expected_commit=at,
            effects=(settle,),
            events=(notice.event(),),
            outgoing=(NewOutgoing(kind=OutboxKind.WAKE, target=effect.key, body=body),),
        )
        receipt = await self._store.commit(commit)
        await self._listeners.tell(notice)
        sent = await self._store.outbox.get(receipt.outgoing_ids[0], tenant=effect.key.tenant)
        if sent is not None:
            await self._deliveries.deliver(sent)

    async def _asking_about(self, effect: Effect, place: Place) -> Wait | None:
        """Return the open wait of a run that is suspended because of this effect."""
        for wait in await self._store.waits.of_session(effect.key):
            if wait.kind == WaitKind.IN_DOUBT and wait.metadata.get("effect") == place.record():
                run = await self._store.runs.get(wait.run_id, tenant=wait.key.tenant)
                return wait if run is not None and run.origin_id == effect.origin_id else None
        return None


def _not_open(effect: Effect, place: Place, state: str) -> EffectNotOpen:
    return EffectNotOpen(
        f"The effect {place} of {effect.key} is {state}.", key=effect.key, place=place, found="not in doubt"
    )


def _is_same(one: Effect, other: Effect) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in ("origin_id", "namespace", "step", "effect_key"))
