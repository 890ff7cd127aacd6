"""Calls to the outside from a turn: made once and recorded, or in doubt."""

from dataclasses import replace
from operator import itemgetter
from typing import Any

from tenuto.codec import JSON, dumps, encode, loads
from tenuto.errors import CommitTooLarge, EffectInDoubt, InvalidHistory, InvalidInput, StoreError
from tenuto.messages.tool_result import result_message
from tenuto.model.effect import EffectKind, EffectStatus, FinishEffect, SettleEffect
from tenuto.model.wait import WaitKind
from tenuto.runtime.calls.arguments import check_callable, sized
from tenuto.runtime.calls.call_maker import Call, Making, Record, TimedOut
from tenuto.runtime.calls.failure import Raises, check_raises, failure_record, without_type
from tenuto.runtime.calls.result_form import PLAIN, PlainForm, ResultForm
from tenuto.runtime.calls.retry import NO_RETRY, Retry
from tenuto.runtime.calls.steps import check_model_call
from tenuto.runtime.calls.suspension import settled
from tenuto.runtime.session.session_view import MESSAGES
from tenuto.runtime.stream.moments import CallReplayed
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.effect_journal import Known, Place, check_same, place_of, result_of
from tenuto.runtime.turn.failure_log import as_replayed
from tenuto.runtime.turn.invocation_waits import WaitRequest, answer_of
from tenuto.store.bounds import check_effect, check_flag, check_word


async def call_effect(
    turn: TurnContext,
    place: Place,
    call: Call,
    request: JSON,
    *,
    kind: EffectKind | str,
    idempotent: bool,
    call_id: str | None,
    record: Record | None,
    caller: object = None,
    retry: Retry = NO_RETRY,
    form: ResultForm[Any] | PlainForm = PLAIN,
    raises: Raises = (),
    tool: str | None = None,
    may_suspend: bool = True,
) -> Any:
    """See `Turn.effect`. Each `caller` may call an effect once: the program, one attempt at a node, or at a call.

    `tool` is the name of the tool that a model called. Unless it `may_suspend`, long pauses pass in memory.
    """
    turn.check_open()
    check_effect(place.key, place.namespace, call_id)
    check_callable(call, "call")
    check_flag(idempotent, "idempotent")
    kind = EffectKind(check_word(kind, EffectKind, "kind"))
    repeatable = idempotent or kind is EffectKind.MODEL
    retry.check_safe(f"The effect {place}", repeatable=repeatable)
    # A copy: the caller may change its own later. The size includes the nesting in a wait's metadata.
    text = sized(dumps({"request": request}, "effect"), f"request of {place}", turn.room)
    request = loads(text, "request")["request"]
    turn.check_stop()
    known = turn.journal.find(place)
    if known is not None:
        check_same(place, known, kind, request)
    making = Making(turn, place, call, retry, form, repeatable, check_raises(raises), record, tool, may_suspend)
    turn.keys.use(place, caller or turn.caller)
    if known is not None:
        if known.in_doubt:
            known = await _settled(turn, place, known, idempotent=idempotent, tool=tool)
        elif known.status is EffectStatus.STARTED and record is None:
            raise InvalidInput(f"The effect {place} is already running; give each call its own key.")
        if known is not None and known.status is EffectStatus.FAILED and making.is_due(known):
            known = None
        if known is not None and known.status is not EffectStatus.STARTED:
            if turn.inline is not None:
                has_failed = known.error is not None
                again = CallReplayed(ids=turn.ids, place=place, kind=kind, call_id=known.call_id, failed=has_failed)
                turn.inline.mark(again)
            return _replayed(making, known)
    begins = known is None or not known.mine
    if begins and kind is EffectKind.MODEL and not turn.call_under_way() and (left := turn.open_calls):
        raise InvalidHistory(
            f"Call {left[0]['id']!r} has no result; append it before calling the model.", call_id=left[0]["id"]
        )
    if begins:
        if kind is EffectKind.MODEL:
            check_model_call(turn, place)
        started = turn.journal.start(place, kind, request, idempotent=idempotent, call_id=call_id)
        turn.pending.effects.append(started)
        if kind is not EffectKind.MODEL or started.making > 1 or _has_failures(turn):
            await turn.commit()
    if turn.writer.has_lapsed:
        await _make_sure(turn)  # a runner that was suspended for long must not start a call in a session it has lost
    if kind is EffectKind.MODEL:
        return await making.made()
    turn.tools_under_way += 1
    try:
        result = await making.made()
    except TimedOut:
        await _settled(turn, place, turn.journal.doubt(place), idempotent=False, tool=tool, is_new=True)
        raise
    finally:
        turn.tools_under_way -= 1
        if turn.journal.is_over(place) and not turn.closed and not making.is_paused:
            await _save(turn)
            if not turn.tools_under_way:
                turn.check_stop()  # a stop waits only for the calls that were running
    known = turn.journal.find(place)
    if known is not None and known.error is not None:
        raise making.failure(known.error)  # no commit had room for its result
    return result


def _has_failures(turn: TurnContext) -> bool:
    """Return whether a failure is not written yet: a runner that takes over has to take the same branch after it."""
    return any(isinstance(each, FinishEffect) and each.error is not None for each in turn.pending.effects)


def _replayed(making: Making, known: Known) -> Any:
    """Return the recorded result, or raise the recorded failure."""
    making.turn.journal.went_past(making.place.namespace)
    if known.error is not None:
        making.note_failure()
        raise as_replayed(making.failure(known.error))
    return making.form.again(result_of(making.place, known), f"result of {making.place}")


def start_call(turn: TurnContext, call_id: str, request: JSON, *, idempotent: bool) -> None:
    """Record a tool call as started in the next commit, together with the message that makes it."""
    place = Place("", turn.step, call_id)
    known = turn.journal.find(place)
    if known is None or (known.status is EffectStatus.FAILED and turn.waits.pause_of(str(place), known.making)):
        started = turn.journal.start(place, EffectKind.TOOL, request, idempotent=idempotent, call_id=call_id)
        turn.pending.effects.append(started)


async def _make_sure(turn: TurnContext) -> None:
    try:
        await turn.writer.make_sure()
    except StoreError as error:
        turn.note_store_failure(error)
        raise


async def _save(turn: TurnContext) -> None:
    """Write the results of calls; if they do not fit in one commit together, replace the largest with errors."""
    while True:
        try:
            return await turn.save()
        except CommitTooLarge:
            if not shorten_result(turn):
                raise


def shorten_result(turn: TurnContext) -> bool:
    """Replace the largest result that is not written yet with an error; return whether there was one."""
    effects = turn.pending.effects
    unwritten = [
        (len(encode(each.result)), at, each)
        for at, each in enumerate(effects)
        if isinstance(each, FinishEffect | SettleEffect) and each.result is not None
    ]
    small = turn.writer.store.budget.max_bytes // 64  # smaller results are not what fills a commit
    unwritten = [each for each in unwritten if each[0] > small]
    if not unwritten:
        return False
    size, at, change = max(unwritten, key=itemgetter(0))
    error = failure_record(CommitTooLarge(f"The result was not stored: {size:,} characters do not fit in a commit."))
    effects[at] = replace(change, result=None, error=error)
    known = turn.journal.failed(place_of(change), error)
    messages = turn.replica.messages
    for index in range(turn.pending.written(MESSAGES), len(messages)):
        if known.call_id is not None and messages[index].get("tool_call_id") == known.call_id:
            messages[index] = result_message(known.call_id, None, without_type(error))
    return True


async def _settled(
    turn: TurnContext, place: Place, known: Known, *, idempotent: bool, tool: str | None, is_new: bool = False
) -> Known | None:
    """Decide about a call in doubt: return None to repeat the call, otherwise its settled state.

    A new doubt is about a call of this turn, which does not repeat it.
    """
    again = known.kind is EffectKind.MODEL or idempotent or known.idempotent
    policy = "retry" if again else turn.in_doubt
    if is_new and policy == "retry":
        policy = "fail"
    if policy == "retry":
        return None
    if policy == "fail" or turn.call_under_way():
        raise in_doubt_error(turn, place)
    metadata: dict[str, Any] = {"effect": place.record(), "request": known.request}
    if known.call_id is not None:
        metadata["call_id"] = known.call_id
    if tool is not None:
        metadata["tool"] = tool
    if known.making > 1:
        metadata["making"] = known.making
    wanted = WaitRequest(
        signal_id=f"in_doubt:{place}{f' #{known.making}' if known.making > 1 else ''}",
        kind=WaitKind.IN_DOUBT,
        metadata=metadata,
    )
    answer: Any = answer_of(settled(turn, [(wanted, None)])[0])
    if answer.get("outcome") == "retry":
        return None
    settle(turn, place, answer)
    await turn.commit()
    return turn.journal.find(place)


def settle(turn: TurnContext, place: Place, answer: Any) -> tuple[JSON, JSON]:
    """Record the answer that settles a call in doubt; return the call's result and error."""
    error = answer.get("error") if answer.get("outcome") == "failed" else None
    if answer.get("outcome") == "failed" and error is None:
        error = {"category": "effect_failed", "message": "The call was settled as failed."}
    result = answer.get("result") if error is None else None
    turn.pending.effects.append(turn.journal.settle(place, result=result, error=error))
    return result, error


def in_doubt_error(turn: TurnContext, place: Place) -> EffectInDoubt:
    """Return the error for a call in doubt at a place where the turn cannot suspend to ask."""
    return EffectInDoubt(
        f"It is not known whether the effect {place} of {turn.key} was carried out; settle it, then send again.",
        place=place.record(),
    )
