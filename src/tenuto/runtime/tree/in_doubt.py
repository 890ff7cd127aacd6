"""Calls in doubt: somebody who knows says what became of them."""

from tenuto.codec import JSON, dumps
from tenuto.errors import EffectNotOpen
from tenuto.ids import new_id
from tenuto.model.commit import Commit
from tenuto.model.effect import Effect, SettleEffect
from tenuto.model.outgoing import NewOutgoing, OutboxKind
from tenuto.model.session import SessionKey
from tenuto.model.wait import Wait, WaitKind
from tenuto.runtime.stream.notices import EffectSettled, Listeners
from tenuto.runtime.tree.answer import AnswerDesk, error_data
from tenuto.runtime.tree.delivery import Deliveries
from tenuto.runtime.turn.effect_journal import Place
from tenuto.runtime.turn.outbox_body import notice_body
from tenuto.store.store import Store
from tenuto.writing.pages import all_effects


class InDoubtCalls:
    """Knows the calls of which nobody knows whether they were carried out, and settles them."""

    def __init__(self, store: Store, listeners: Listeners, answers: AnswerDesk, deliveries: Deliveries) -> None:
        self._store = store
        self._listeners = listeners
        self._answers = answers
        self._deliveries = deliveries

    async def of_session(self, key: SessionKey) -> tuple[Effect, ...]:
        """Return a session's calls in doubt."""
        return await all_effects(self._store, key, in_doubt=True)

    async def settle(self, effect: Effect, *, result: JSON, error: JSON) -> None:
        """Answer the run that asks about a call, or settle it on record and leave a notice for the model."""
        dumps(result, "result")
        dumps(error, "error")
        place = Place(effect.namespace, effect.step, effect.effect_key)
        outcome = "done" if error is None else "failed"
        wait = await self._asking_about(effect, place)
        if wait is not None:
            said = {"outcome": outcome, "result": result} if error is None else {"outcome": outcome, "error": error}
            await self._answers.give(wait.wait_id, said, tenant=effect.key.tenant, kind=wait.kind)
            return
        if not any(_is_same(each, effect) for each in await self.of_session(effect.key)):
            raise EffectNotOpen(
                f"The effect {place} of {effect.key} is not in doubt: it came back, was settled, or is under way.",
                key=effect.key,
                place=place,
                found="not in doubt",
            )
        await self._record(effect, place, outcome, result=result, error=error)

    async def _record(self, effect: Effect, place: Place, outcome: str, *, result: JSON, error: JSON) -> None:
        """Settle a call in one commit with the wake that tells the model, and hand that over at once."""
        notice = EffectSettled(key=effect.key, effect=str(place), outcome=outcome)
        settle = SettleEffect(
            key=place.key,
            step=place.step,
            namespace=place.namespace,
            origin_id=effect.origin_id,
            result=result,
            error=None if error is None else error_data(error),
        )
        text = f"The call {effect.call_id or effect.effect_key!r}, whose outcome was unknown, turned out {outcome}."
        told = notice_body(text, {"result": result} if error is None else {"error": error}, effect=place.record())
        commit = Commit(
            key=effect.key,
            operation_id=new_id(),
            life=effect.life,
            effects=(settle,),
            events=(notice.event(),),
            outgoing=(NewOutgoing(kind=OutboxKind.WAKE, target=effect.key, body=told),),
        )
        receipt = await self._store.commit(commit)
        await self._listeners.tell(notice)
        sent = await self._store.outbox.get(receipt.outgoing_ids[0], tenant=effect.key.tenant)
        if sent is not None:
            await self._deliveries.deliver(sent)

    async def _asking_about(self, effect: Effect, place: Place) -> Wait | None:
        """Return the open wait of a run that was suspended because of this effect."""
        for wait in await self._store.waits.of_session(effect.key):
            if wait.kind == WaitKind.IN_DOUBT and wait.metadata.get("effect") == place.record():
                run = await self._store.runs.get(wait.run_id, tenant=wait.key.tenant)
                return wait if run is not None and run.origin_id == effect.origin_id else None
        return None


def _is_same(one: Effect, other: Effect) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in ("origin_id", "namespace", "step", "effect_key"))
