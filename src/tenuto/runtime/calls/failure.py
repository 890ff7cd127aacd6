"""The failure of a call: how it is recorded, and what the program gets for it, when it happens and at every replay."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from tenuto.argument import refuse
from tenuto.codec import JSON
from tenuto.errors import EffectFailed, TenutoError
from tenuto.runtime.turn.effect_journal import Place
from tenuto.writing.error_record import clipped, error_record, fits_record

Raises: TypeAlias = type[Exception] | tuple[type[Exception], ...]

RAISED = "raised"
"""The field of a failure's record with the type of the exception and what it holds."""

_MOST_FIELDS = 20
_SECRET = ("key", "secret", "token", "password", "auth", "cookie", "header")
"""Words in the names of attributes that are not recorded."""


def check_raises(raises: Any) -> tuple[type[Exception], ...]:
    """Return the exception types that a call may raise, or refuse what are none."""
    given = raises if isinstance(raises, tuple) else (raises,)
    if not all(isinstance(each, type) and issubclass(each, Exception) for each in given):
        refuse("raises", "an exception type, or a tuple of them", raises)
    return given


def failure_record(error: BaseException) -> JSON:
    """Return what is recorded of a failed call: with the exception's type, if it can be raised again."""
    record = error_record(error)
    raised: dict[str, JSON] = {"type": _name_of(type(error)), "args": [_bare(each) for each in error.args]}
    with suppress(Exception):  # whatever an exception's own class raises
        ours = isinstance(error, TenutoError)
        fields = {name: value for name, value in vars(error).items() if _is_shown(name, ours) and fits_record(value)}
        if fields:
            raised["fields"] = dict(list(fields.items())[:_MOST_FIELDS])
    recorded = {**record, RAISED: raised}
    return recorded if type(exception_of(recorded)) is type(error) else record


def failure_of(
    place: Place, record: Any, *, own: bool, raises: tuple[type[Exception], ...], live: Exception | None = None
) -> Exception:
    """Return what a program gets for a failed call: the call's own exception, or `EffectFailed`.

    It is the same at a replay as when it happened, which is when `live` is given.
    """
    again = exception_of(record)
    if again is not None and (own or isinstance(again, raises)):
        return again if live is None else live
    said = f"The effect {place} failed: {record.get('category')}: {record.get('message')}"
    failed = EffectFailed(said, place=place.record(), error=without_type(record))
    failed.__cause__ = live
    return failed


def without_type(record: JSON) -> JSON:
    """Return a failure's record as other records and messages hold it."""
    if not isinstance(record, Mapping) or RAISED not in record:
        return record
    return {name: value for name, value in record.items() if name != RAISED}


def exception_of(record: Any) -> Exception | None:
    """Return the exception that a failure was, as far as it is recorded; None if its type is not known here."""
    raised: Any = record.get(RAISED) if isinstance(record, Mapping) else None
    kind = None if raised is None else _class_of(raised["type"])
    if kind is None:
        return None
    try:
        made = kind.__new__(kind, *raised["args"])
        fields: dict[str, Any] = dict(raised.get("fields", {}))
        if isinstance(made, TenutoError):
            TenutoError.__init__(made, fields.pop("message", record["message"]), **fields)
        else:
            made.args = tuple(raised["args"])
            vars(made).update(fields)
        str(made)
    except Exception:  # only its own constructor can make it
        return None
    return made


def _name_of(kind: type[BaseException]) -> str:
    module = _main() if kind.__module__ == "__main__" else kind.__module__
    return f"{module}:{kind.__qualname__}"


def _class_of(name: str) -> type[Exception] | None:
    """Return the exception class of a name, in a module that is loaded; none is imported because of a record."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module) or (sys.modules.get("__main__") if module == _main() else None)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _main() -> str:
    """Return what the program's main module is called where it is imported."""
    main: Any = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    return str(spec.name) if spec is not None else Path(getattr(main, "__file__", "") or "__main__").stem


def _is_shown(name: str, ours: bool) -> bool:
    return not name.startswith("_") and (ours or not any(word in name.lower() for word in _SECRET))


def _bare(value: Any) -> JSON:
    return value if fits_record(value) else clipped(value)
