"""Scheduled messages: how they are declared, and what of their occurrence a turn is shown."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tenuto.argument import word_of
from tenuto.codec import JSON
from tenuto.model.input import Input
from tenuto.model.schedule import Missed, NewSchedule, WhenWaiting
from tenuto.runtime.conversation.history import as_message
from tenuto.words import Seconds


def new_schedule(
    name: str, message: Any, *, every: Seconds | None, cron: str | None, tz: str, missed: str, when_waiting: str
) -> NewSchedule:
    """Return a schedule of messages, as the store takes it."""
    return NewSchedule(
        name=name,
        body={"message": as_message(message)},
        every=every.total_seconds() if isinstance(every, timedelta) else every,
        cron=cron,
        tz=tz,
        missed=word_of(Missed, missed, "missed"),
        when_waiting=word_of(WhenWaiting, when_waiting, "when_waiting"),
    )


def spares_waits(queued: Input) -> bool:
    """Return whether an input leaves a session alone that waits for something, instead of abandoning that."""
    about = _about(queued.body)
    return about is not None and about.get("when_waiting") != WhenWaiting.ABANDON


def with_occurrence(message: JSON, body: JSON) -> JSON:
    """Return the message of an input, with the occurrence it was queued for in its metadata, if it was scheduled."""
    about = _about(body)
    if about is None or not isinstance(message, Mapping):
        return message
    known = message.get("metadata")
    occurrence = {name: about.get(name) for name in ("name", "at", "missed")}
    return {**message, "metadata": {**(known if isinstance(known, Mapping) else {}), "schedule": occurrence}}


def _about(body: JSON) -> Mapping[str, Any] | None:
    about = body.get("schedule") if isinstance(body, Mapping) else None
    return about if isinstance(about, Mapping) else None
