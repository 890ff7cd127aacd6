"""A failure as a run's record keeps it: plain data."""

from typing import Any

from tenuto.codec import JSON, dumps
from tenuto.errors import NotJson


def error_record(error: BaseException) -> JSON:
    """Return an error as plain data: category, message and what is behind it."""
    category = getattr(error, "category", type(error).__name__)
    record: dict[str, JSON] = {"category": category, "message": str(getattr(error, "message", error))}
    details = {name: value for name, value in getattr(error, "_details", {}).items() if _is_plain(value)}
    return record | {"details": details} if details else record


def _is_plain(value: Any) -> bool:
    try:
        dumps(value)
    except NotJson:
        return False
    return True
