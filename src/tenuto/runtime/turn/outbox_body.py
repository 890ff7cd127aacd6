"""The bodies of what sessions send each other, as plain data."""

from collections.abc import Mapping
from typing import Any

from tenuto.codec import JSON


def token_of(body: JSON) -> str | None:
    """Return the token of whoever waits for the turn that this input begins."""
    origin: Any = body.get("for") if isinstance(body, Mapping) else None
    return origin["token"] if isinstance(origin, Mapping) else None


def notice_body(text: str, data: JSON, **about: JSON) -> dict[str, JSON]:
    """Return the body of a wake that tells the model something, once.

    The text is a sentence of ours: it names what it is about, and nothing that anybody gave, which is in `data`.
    """
    return {"notice": {"text": text, **about, "data": data}}
