"""Input that a program queues, or schedules, in the commit that writes what it did."""

from datetime import datetime, timedelta
from typing import Any

from tenuto.codec import JSON, dumps
from tenuto.errors import InvalidInput
from tenuto.ids import new_id
from tenuto.model.effect import EffectKind
from tenuto.model.outgoing_item import NewOutgoing, OutboxKind
from tenuto.model.schedule import NewSchedule
from tenuto.model.session import session_key
from tenuto.runtime.calls.arguments import sized
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.effect_journal import KEPT, SENT, Place, check_same, result_of
from tenuto.store.bounds import check_delay, check_flag, check_key, check_moment, check_name, check_schedule
from tenuto.words import Seconds

_WORDS = ("body", "every", "cron", "tz")


def enqueue(
    turn: TurnContext,
    message: Any,
    *,
    session: str | None,
    due_at: datetime | None,
    delay: Seconds | None,
    key: str | None,
    even_if_failed: bool,
) -> str:
    """See `Turn.enqueue`."""
    turn.check_open()
    kind, body, key = turn.as_input(message, key)
    target = turn.key if session is None else session_key(session, turn.key.tenant)
    when = _when(due_at, delay)
    if key is not None:
        check_key(key)
    lasts = check_flag(even_if_failed, "even_if_failed")
    place = _place(turn, key, lasts=lasts)
    item: dict[str, JSON] = {"kind": str(kind), "body": body, **when}
    if key is not None:
        item["key"] = key
    sized(dumps(item, "message"), "message", turn.room)
    known, request = turn.journal.find(place), {"session": target.session_id, "kind": str(kind), "body": body}
    if known is not None:
        check_same(place, known, EffectKind.OTHER, request)
        return str(result_of(place, known))
    outbox_id = new_id()  # ids are in the order of minting, which is that of delivery
    turn.pending.effects.append(turn.journal.start(place, EffectKind.OTHER, request, idempotent=True, call_id=None))
    turn.pending.effects.append(turn.journal.finish(place, result=outbox_id))
    turn.pending.outgoing.append(NewOutgoing(kind=OutboxKind.INPUT, target=target, body=item, outbox_id=outbox_id))
    if lasts:
        turn.pending.lasting.add(outbox_id)
    return outbox_id


def _when(due_at: datetime | None, delay: Seconds | None) -> dict[str, JSON]:
    if due_at is not None and delay is not None:
        raise InvalidInput("Queued input has a due time and a delay; give one of them.")
    if due_at is not None:
        return {"due_at": check_moment(due_at, "due_at").isoformat()}
    if delay is None:
        return {}
    return {"delay": check_delay(delay.total_seconds() if isinstance(delay, timedelta) else delay, "delay")}


def _place(turn: TurnContext, key: str | None, *, lasts: bool) -> Place:
    """Return where a program queues something: by its key, or as the n-th of its step."""
    inside = turn.namespace
    if key is None:
        turn.queued[inside, turn.step] += 1
        named = f"#{turn.queued[inside, turn.step]}"
    else:
        named = f"={key}"
    return Place(KEPT if lasts else SENT, turn.step, f"{inside}/{named}" if inside else named)


def schedule(turn: TurnContext, name: str, new: NewSchedule | None) -> None:
    """Declare a schedule of the turn's session with the next commit, or remove the one of that name."""
    turn.check_open()
    words: JSON = None
    if new is not None:
        check_schedule(new)
        words = {each: getattr(new, each) for each in _WORDS} | {
            "missed": str(new.missed),
            "when_waiting": str(new.when_waiting),
        }
    body: dict[str, JSON] = {"name": check_name(name, "name"), "words": words}
    sized(dumps(body, "schedule"), "schedule", turn.room)
    turn.pending.outgoing.append(NewOutgoing(kind=OutboxKind.SCHEDULE, target=turn.key, body=body))
