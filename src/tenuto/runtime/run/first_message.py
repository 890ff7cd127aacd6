"""What a session is given: a message that begins a turn, as it arrives or from the inbox, or a notice."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import InvalidInput, OperationConflict
from tenuto.model.input import Input, InputKind
from tenuto.model.session import SessionKey
from tenuto.runtime.cache.replica import Replica
from tenuto.runtime.session.traits import ProgramTraits
from tenuto.store.store import Store

_ROLLS_BACK = "rolls_back"
_FORMER = "Something came too late to be used, or was settled by hand."


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstMessage:
    """What begins a turn: a message, as it arrives or from the inbox, and the run it takes back."""

    message: JSON
    body: JSON
    key: str | None = None
    queued: Input | None = None
    rolls_back: str | None = None


def begins_turn(queued: Input) -> bool:
    """Tell whether an input is a message, or brings one."""
    return queued.kind is InputKind.MESSAGE or (queued.kind is InputKind.WAKE and _brings_message(queued.body))


def _brings_message(body: JSON) -> bool:
    return isinstance(body, Mapping) and "message" in body


async def first_message_of(store: Store, queued: Input, replica: Replica) -> FirstMessage:
    """Return what an input gives that begins a turn; one that brings no message is `InvalidInput`."""
    body: Any = queued.body
    if not _brings_message(body):
        raise InvalidInput(f"The input {queued.input_id} of {queued.key} brings no message.", input_id=queued.input_id)
    rolls_back = await _rolled_back_by(store, queued, replica)
    return FirstMessage(message=body["message"], body=body, queued=queued, rolls_back=rolls_back)


def plain_first_message(queued: Input) -> FirstMessage | None:
    """Return what an input gives that begins a turn and takes nothing back; None if that is not so."""
    body: Any = queued.body
    if not begins_turn(queued) or not _brings_message(body) or _ROLLS_BACK in body:
        return None
    return FirstMessage(message=body["message"], body=body, queued=queued)


def rolling_back(body: Any) -> JSON:
    """Return the body of a message that takes back the run that is under way when it comes in."""
    return {**body, _ROLLS_BACK: True}


async def _rolled_back_by(store: Store, queued: Input, replica: Replica) -> str | None:
    """Return the run that was under way when a message came in that takes it back, if it was the last one."""
    body: Any = queued.body
    if _ROLLS_BACK not in body or replica.last_run is None:
        return None
    run = await store.runs.get(replica.last_run[0], tenant=replica.key.tenant)
    if run is None or run.ended_at is None or run.start_sequence >= queued.seq:
        return None
    return run.run_id if run.ended_at >= queued.created_at else None


async def sent_before(store: Store, key: SessionKey, given: FirstMessage) -> Input | None:
    """Return the input that was sent with a message's key, None if there is none; other content is refused."""
    found = None if given.key is None else await store.inbox.find(key, given.key)
    if found is None:
        return None
    digest = store.inbox.digest
    if found.digest not in (digest(InputKind.MESSAGE, each) for each in (given.body, rolling_back(given.body))):
        raise OperationConflict(
            f"The key {given.key!r} was used before for other input ({found.input_id}); mint a new key.",
            operation_id=given.key,
            input_id=found.input_id,
        )
    return found


def is_notice(queued: Input) -> bool:
    """Tell whether an input brings something that came too late to be a result."""
    return isinstance(queued.body, Mapping) and "notice" in queued.body


def notice_message(queued: Input, declared: ProgramTraits) -> JSON | None:
    """Return what tells the model of an input's notice; None if it brings none, or the program has no form for it.

    It speaks with our voice, so it is our sentence alone; what somebody gave is in the metadata.
    """
    if not is_notice(queued):
        return None
    body: Any = queued.body
    notice = body["notice"]
    if not isinstance(notice, Mapping) or not isinstance(notice.get("text"), str):
        raise InvalidInput(f"The input {queued.input_id} of {queued.key} has a notice without a text.")
    about = dict(notice)
    text = about.pop("text")
    if "data" not in about:  # queued by a version whose text had it too
        about, text = {"data": about}, _FORMER
    data = about.pop("data")
    return declared.notice({"role": "system", "content": text, "metadata": {"notice": about, "data": data}})
