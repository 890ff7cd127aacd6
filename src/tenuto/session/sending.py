"""What sessions send each other through the outbox, as plain data."""

from collections.abc import Mapping
from typing import Any

from tenuto.codec import JSON
from tenuto.model.outbox import CHILD_RESULT, STOP_CHILD

WAKE = "wake"
"""Go on: an answer is there, a time has come, or a message follows a hand-off."""

CHILD = "child"
"""Begin a child session, or consult one again."""

RESULT = CHILD_RESULT
"""How a child's turn went, for the parent that waits for it."""

STOP = STOP_CHILD
"""A parent does not wait for a child any more: a debt that is owed until the child has stopped."""


def token_of(body: JSON) -> str | None:
    """Return the token of whoever waits for the turn that this input begins."""
    origin: Any = body.get("for") if isinstance(body, Mapping) else None
    return origin["token"] if isinstance(origin, Mapping) else None


def notice_body(text: str, data: JSON, **about: JSON) -> dict[str, JSON]:
    """Return the body of a wake that tells the model something, once.

    The text is a sentence of ours: it names what it is about, and nothing that anybody gave, which is in `data`.
    """
    return {"notice": {"text": text, **about, "data": data}}
