"""The arguments of a tool call: an object in a message, a JSON text at some providers."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from tenuto.codec import dumps, encode
from tenuto.errors import NotJson

UNPARSED = "$unparsed"
"""The only field of the arguments of a call whose text is not a JSON object: that text, unchanged."""


def arguments_of(text: str) -> dict[str, Any]:
    """Return the arguments that a provider's text contains; one that is not a JSON object is kept as `UNPARSED`."""
    if not text:
        return {}
    try:
        found = from_json(text, allow_inf_nan=False)
        dumps(found)
    except (ValueError, NotJson):
        return {UNPARSED: text}
    return found if type(found) is dict else {UNPARSED: text}


def text_of_arguments(arguments: Mapping[str, Any] | None) -> str:
    """Return arguments as a provider's text; the inverse of `arguments_of`."""
    if arguments and len(arguments) == 1 and isinstance(kept := arguments.get(UNPARSED), str):
        return kept
    return encode(dict(arguments or {}))
