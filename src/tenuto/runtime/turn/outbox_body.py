"""The bodies of items that sessions send each other, as plain data."""

from collections.abc import Mapping
from typing import Any

from tenuto.codec import JSON


def token_of(body: JSON) -> str | None:
    """Return the token of the parent's wait for the turn that this input begins; None if there is none."""
    origin: Any = body.get("for") if isinstance(body, Mapping) else None
    return origin["token"] if isinstance(origin, Mapping) else None


def notice_body(text: str, data: JSON, **about: JSON) -> dict[str, JSON]:
    """Return the body of a wake that reports something to the model, once.

    The text is a fixed sentence of the runtime; values from outside are only in `data`.
    """
    return {"notice": {"text": text, **about, "data": data}}
