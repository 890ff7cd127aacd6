"""The message that begins a turn, as it arrives or from the inbox, and notices for the model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import InvalidInput, OperationConflict
from tenuto.model.input import Input, InputKind
from tenuto.model.session import SessionKey
from tenuto.runtime.conversation.scheduled_message import with_occurrence
from tenuto.runtime.session.traits import ProgramTraits
from tenuto.runtime.turn.replica import Replica
from tenuto.store.store import Store

_ROLLS_BACK = "rolls_back"
_REGENERATES = "regenerates"
_FORMER = "Something came too late to be used, or was settled by hand."


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstMessage:
    """The message that begins a turn, as it arrives or from the inbox, and the run it rolls back.

    One that `regenerates` is the message of that run, which is found when the turn begins.
    """

    message: JSON
    body: JSON
    key: str | None = None
    queued: Input | None = None
    rolls_back: str | None = None
    regenerates: bool = False


def to_regenerate(run_id: str | None, key: str | None) -> FirstMessage:
    """Return a request to regenerate the turn of a run, or the last turn."""
    body: dict[str, JSON] = {"message": None, _REGENERATES: run_id}
    return FirstMessage(message=None, body=body, key=key, rolls_back=run_id, regenerates=True)


def is_regeneration(body: Any) -> bool:
    """Return whether the body of an input is a request to regenerate."""
    return isinstance(body, Mapping) and _REGENERATES in body


def begins_turn(queued: Input) -> bool:
    """Return whether an input is a message, or a wake with one."""
    return queued.kind is InputKind.MESSAGE or (queued.kind is InputKind.WAKE and _has_message(queued.body))


def _has_message(body: JSON) -> bool:
    return isinstance(body, Mapping) and "message" in body


async def first_message_of(store: Store, queued: Input, replica: Replica) -> FirstMessage:
    """Return the message of an input that begins a turn; raise `InvalidInput` if it has none."""
    body: Any = queued.body
    if not _has_message(body):
        raise InvalidInput(f"Input {queued.input_id} of {queued.key} has no message.", input_id=queued.input_id)
    if is_regeneration(body):
        run_id = body[_REGENERATES]
        return FirstMessage(message=None, body=body, queued=queued, rolls_back=run_id, regenerates=True)
    rolls_back = await _rolled_back_by(store, queued, replica)
    message = with_occurrence(body["message"], body)
    return FirstMessage(message=message, body=body, queued=queued, rolls_back=rolls_back)


def plain_first_message(queued: Input) -> FirstMessage | None:
    """Return the message of an input that begins a turn and rolls nothing back; None for any other input."""
    body: Any = queued.body
    if not begins_turn(queued) or not _has_message(body) or _ROLLS_BACK in body or is_regeneration(body):
        return None
    return FirstMessage(message=with_occurrence(body["message"], body), body=body, queued=queued)


def rolling_back(body: Any) -> JSON:
    """Return the body of a message that rolls back the run that is running when it arrives."""
    return {**body, _ROLLS_BACK: True}


async def _rolled_back_by(store: Store, queued: Input, replica: Replica) -> str | None:
    """Return the run that a message rolls back: the last one, if it was running when the message arrived."""
    body: Any = queued.body
    if _ROLLS_BACK not in body or replica.last_run is None:
        return None
    run = await store.runs.get(replica.last_run[0], tenant=replica.key.tenant)
    if run is None or run.ended_at is None or run.start_sequence >= queued.seq:
        return None
    return run.run_id if run.ended_at >= queued.created_at else None


async def sent_before(store: Store, key: SessionKey, first: FirstMessage) -> Input | None:
    """Return the input that was sent under a message's key, if any; raise `OperationConflict` if it differs."""
    found = None if first.key is None else await store.inbox.find(key, first.key)
    if found is None:
        return None
    digest = store.inbox.digest
    if found.digest not in (digest(InputKind.MESSAGE, each) for each in (first.body, rolling_back(first.body))):
        raise OperationConflict(
            f"The key {first.key!r} was already used for different input ({found.input_id}); use a different key.",
            operation_id=first.key,
            input_id=found.input_id,
        )
    return found


def is_notice(queued: Input) -> bool:
    """Return whether an input is a notice for the model, such as an answer that came too late."""
    return isinstance(queued.body, Mapping) and "notice" in queued.body


def notice_message(queued: Input, declared: ProgramTraits) -> JSON | None:
    """Return the message that reports an input's notice to the model; None if it is not a notice, or is not accepted.

    It is a system message, so its text is a fixed sentence of the runtime; values from outside are in the metadata.
    """
    if not is_notice(queued):
        return None
    body: Any = queued.body
    notice = body["notice"]
    if not isinstance(notice, Mapping) or not isinstance(notice.get("text"), str):
        raise InvalidInput(f"Input {queued.input_id} of {queued.key} has a notice without a text.")
    about = dict(notice)
    text = about.pop("text")
    if "data" not in about:  # queued by an earlier version, whose text contained the data
        about, text = {"data": about}, _FORMER
    data = about.pop("data")
    return declared.notice({"role": "system", "content": text, "metadata": {"notice": about, "data": data}})
