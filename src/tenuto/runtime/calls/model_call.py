"""Model calls that a program does not name: their keys by order of start, and the request that is recorded for them."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tenuto.codec import JSON
from tenuto.model.effect import EffectKind
from tenuto.runtime.calls.effect_call import call_effect
from tenuto.runtime.calls.result_form import PlainForm, ResultForm
from tenuto.runtime.calls.retry import Retry
from tenuto.runtime.session.session_view import MESSAGES
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.effect_journal import Place

_SEEN = frozenset({"messages", "since", "digest"})


async def call_model(
    turn: TurnContext,
    place_of: Callable[[str], Place],
    call: Callable[[], Awaitable[Any]],
    *,
    key: str | None,
    request: JSON,
    retry: Retry,
    form: ResultForm[Any] | PlainForm,
    caller: object = None,
    may_suspend: bool = True,
) -> Any:
    """See `Turn.model`; `place_of` returns where a key is in the program, or in its node."""
    turn.check_open()
    here = place_of("")
    is_counted = key is None
    if key is None:
        key = turn.keys.begin_model(here.namespace, here.step, caller or turn.caller)
    try:
        place = place_of(key)
        about = _seen(turn, place) if request is None else request
        return await call_effect(
            turn,
            place,
            call,
            about,
            kind=EffectKind.MODEL,
            idempotent=False,
            call_id=None,
            record=None,
            caller=caller,
            retry=retry,
            form=form,
            may_suspend=may_suspend,
        )
    finally:
        if is_counted:
            turn.keys.end_model(here.namespace, here.step)


def _seen(turn: TurnContext, place: Place) -> JSON:
    """Return which messages a model sees: how many are stored, from where on it sees them, and their digest.

    A call that was made before saw the messages up to a place in the conversation, which they still have to be.
    """
    if not turn.traits.is_conversation:
        return None
    known, messages = turn.journal.find(place), turn.replica.messages
    upto, since = turn.pending.written(MESSAGES), turn.replica.frame_at or 0
    if known is not None and isinstance(known.request, Mapping) and known.request.keys() == _SEEN:
        then: Any = known.request
        if then["messages"] <= upto:
            upto, since = then["messages"], then["since"]
    return {"messages": upto, "since": since, "digest": turn.replica.digest.of(messages, since, upto)}
