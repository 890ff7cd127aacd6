"""Making a call to the outside from a turn: once, on record, or in doubt."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias

from tenuto.codec import JSON, dumps, loads
from tenuto.errors import CommitTooLarge, EffectCalledTwice, EffectInDoubt, InvalidHistory, InvalidInput
from tenuto.model.effect import EffectKind, EffectStatus
from tenuto.session.effects import InDoubt, Known, Place, check_same, failed, replayed
from tenuto.session.failure import error_record
from tenuto.store.effects import check_effect

if TYPE_CHECKING:
    from tenuto.session.live import LiveTurn

_calling: ContextVar["tuple[LiveTurn, Place] | None"] = ContextVar("calling", default=None)
"""The effect whose call is being made, and whose it is; a call may lead to turns of other sessions."""

Call: TypeAlias = Callable[[], Awaitable[JSON]]
Record: TypeAlias = Callable[[JSON, JSON], None]


def call_under_way(turn: "LiveTurn") -> Place | None:
    """Return the effect of a turn that this is part of: it is done or not done, and cannot suspend."""
    found = _calling.get()
    return found[1] if found is not None and found[0] is turn else None


def namespace_here(turn: "LiveTurn") -> str:
    """Return the namespace of what a turn calls here: none, or that of the call it is part of."""
    outer = call_under_way(turn)
    return "" if outer is None else f"{outer.namespace}/{outer.key}".removeprefix("/")


async def call_effect(
    turn: "LiveTurn",
    place: Place,
    call: Call,
    request: JSON,
    *,
    kind: EffectKind | str,
    idempotent: bool,
    call_id: str | None,
    record: Record | None,
    caller: object = None,
) -> JSON:
    """See `LiveTurn.effect`. Each `caller` may call an effect once: the program, or one attempt at a node."""
    turn.check_open()
    if not isinstance(place.key, str) or not place.key:
        raise InvalidInput("An effect needs a key.")
    if kind not in list(EffectKind):
        raise InvalidInput(f"Unknown kind of effect {kind!r}; known are {', '.join(EffectKind)}.", kind=kind)
    kind = EffectKind(kind)
    check_effect(place.key, place.namespace, call_id)
    # What the caller changes later is not what was asked.
    request = loads(_sized(turn, dumps(request, "request"), f"request of {place}"), "request")
    turn.check_stop()
    known = turn.journal.find(place)
    if known is not None:
        check_same(place, known, kind, request)
    if turn.called.get(place) is (caller or turn):
        raise EffectCalledTwice(
            f"The effect {place} was called twice in this step. Let a loop take steps by each_step(), or give each "
            "call its own key.",
            place=place.record(),
        )
    turn.called[place] = caller or turn
    if known is not None:
        if known.in_doubt:
            known = await _settled(turn, place, known, idempotent=idempotent)
        elif known.status is EffectStatus.STARTED and record is None:
            raise InvalidInput(f"The effect {place} is under way already; give each call its own key.")
        if known is not None and known.status is not EffectStatus.STARTED:
            return replayed(place, known)
    begins = known is None or not known.mine
    if begins and kind is EffectKind.MODEL and not call_under_way(turn) and (left := turn.open_calls):
        raise InvalidHistory(
            f"The call {left[0]['id']!r} has no result; the model is not asked before it has one.",
            call_id=left[0]["id"],
        )
    if begins:
        started = turn.journal.start(place, kind, request, idempotent=idempotent, call_id=call_id)
        turn.pending.effects.append(started)
    if kind is EffectKind.MODEL:
        return await _called(turn, place, call, record)
    if begins:
        await turn.commit()
    turn.tools_under_way += 1
    try:
        return await _called(turn, place, call, record)
    finally:
        turn.tools_under_way -= 1
        if turn.journal.is_over(place) and not turn.closed:
            await turn.save()
            if not turn.tools_under_way:
                turn.check_stop()  # it let the calls under way finish, and no more


def _sized(turn: "LiveTurn", text: str, what: str) -> str:
    """Refuse what would fill the commit it has to be written with: it stands there up to four times."""
    most = turn.writer.store.budget.max_bytes // 4
    if len(text) > most:
        raise CommitTooLarge(
            f"The {what} has {len(text)} characters; {most} are the most.",
            measure="bytes",
            size=len(text),
            budget=most,
        )
    return text


async def _called(turn: "LiveTurn", place: Place, call: Call, record: Record | None) -> JSON:
    before = _calling.set((turn, place))
    try:
        result = await call()
        text = _sized(turn, dumps(result, f"result of {place}"), f"result of {place}")
    except Exception as error:
        told = error_record(error)
        turn.pending.effects.append(turn.journal.finish(place, error=told))
        if record is not None:
            record(None, told)
        raise failed(place, told, error) from error
    finally:
        _calling.reset(before)
    turn.pending.effects.append(turn.journal.finish(place, result=result))
    if record is not None:
        record(result, None)
    return loads(text, f"result of {place}")  # a program that changes it changes nothing on record


async def _settled(turn: "LiveTurn", place: Place, known: Known, *, idempotent: bool) -> Known | None:
    """Decide about a call in doubt: None makes it again; otherwise what is known of it now."""
    again = known.kind is EffectKind.MODEL or idempotent or known.idempotent
    policy = InDoubt.RETRY if again else turn.in_doubt
    if policy is InDoubt.RETRY:
        return None
    if policy is InDoubt.FAIL or call_under_way(turn):
        raise nobody_knows(turn, place)
    metadata: dict[str, Any] = {"effect": place.record(), "request": known.request}
    if known.call_id is not None:
        metadata["call_id"] = known.call_id
    answer: Any = await turn.wait(f"in_doubt:{place}", kind="in_doubt", metadata=metadata)
    if answer.get("outcome") == "retry":
        return None
    settle(turn, place, answer)
    await turn.commit()
    return turn.journal.find(place)


def settle(turn: "LiveTurn", place: Place, answer: Any) -> tuple[JSON, JSON]:
    """Put on record what somebody said became of a call in doubt; return its result and its error."""
    error = answer.get("error") if answer.get("outcome") == "failed" else None
    if answer.get("outcome") == "failed" and error is None:
        error = {"category": "effect_failed", "message": "It was settled as failed."}
    result = answer.get("result") if error is None else None
    turn.pending.effects.append(turn.journal.settle(place, result=result, error=error))
    return result, error


def nobody_knows(turn: "LiveTurn", place: Place) -> EffectInDoubt:
    """Say that a call is in doubt where it cannot be asked about."""
    return EffectInDoubt(
        f"Nobody knows whether the effect {place} of {turn.key} was carried out; settle it, then send again.",
        place=place.record(),
    )
