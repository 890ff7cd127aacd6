"""What each field of a commit's parts may be, so that nothing is stored that cannot be read again.

A field's annotation decides its check, unless `_BY_NAME` or `_BY_CLASS` names another. JSON values are checked where
they are encoded, and what goes together with what in `pack`.
"""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from enum import StrEnum
from types import NoneType
from typing import Any, get_args, get_origin

from tenuto.argument import check_flag, check_kind, check_map, refuse, word_of
from tenuto.errors import InvalidInput
from tenuto.ids import check_id
from tenuto.model.commit import BeginRun, Commit, EndRun, SettleWait
from tenuto.model.event import NewEvent
from tenuto.model.input import NewInput
from tenuto.model.lane import Lane, Owner
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import Kind, LogEnd, SessionFilter, SessionHead, SessionKey, SessionRecord, SessionStatus
from tenuto.model.token_usage import NewUsage
from tenuto.model.wait import WaitStatus
from tenuto.store.rules.limits import (
    Check,
    check_count,
    check_delay,
    check_label,
    check_moment,
    check_name,
    check_timeout,
    check_ttl,
    within,
)

_SUFFICES: dict[Check, type] = {check_flag: bool, check_map: dict}
"""Checks that take every value of a class; one of that very class does not go through them, since most come so."""


class Shape:
    """The fields of a dataclass and the check of each; a field at its default, such as None, is not looked at."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        named = _BY_NAME | _BY_CLASS.get(kind, {})
        checks = [(each, named[each.name] if each.name in named else _check_of(each.type)) for each in fields(kind)]
        self._rows = tuple((each.name, each.default, _SUFFICES.get(check), check) for each, check in checks if check)

    def __call__(self, value: Any, what: str = "") -> None:
        """Refuse a value of another class, and one with a field that cannot be kept; `what` goes before its name."""
        if type(value) is not self.kind:
            refuse(what or f"the {self.kind.__name__.lower()}", f"a {self.kind.__name__}", value)
        try:
            for name, default, suffices, check in self._rows:
                if (given := getattr(value, name)) is not default and type(given) is not suffices:
                    check(given, name)
        except InvalidInput:
            if what:  # only a refusal needs the whole name of the field, so it is put together only then
                check(given, f"{what}.{name}")
            raise


def _check_of(hint: Any) -> Check | None:
    """Return the check of an annotation: of every item for a collection, and none where any JSON value may be."""
    if hint in _BY_TYPE:
        return _BY_TYPE[hint]
    origin, parts = get_origin(hint), get_args(hint)
    if origin is tuple:
        return _list(_check_of(parts[0]))
    if origin is frozenset:
        return _set(_check_of(parts[0]))
    if origin is Mapping:
        return _map(_check_of(parts[1]))
    if parts:
        return _one_of([part for part in parts if part is not NoneType])
    return _word(hint) if issubclass(hint, StrEnum) else Shape(hint)


def _one_of(kinds: list[type]) -> Check | None:
    """Return the check of a union; None is not one of its kinds, since it mostly is the field's default."""
    known = {kind: _check_of(kind) for kind in kinds}
    if len(known) == 1 or None in known.values():
        return known[kinds[0]]
    wanted = " or ".join(kind.__name__ for kind in known)

    def checked(value: Any, what: str) -> None:
        check = known.get(type(value))
        if check is None:
            refuse(what, f"a {wanted}", value)
        check(value, what)

    return checked


def _word(words: type[StrEnum], *but: StrEnum) -> Check:
    wanted = ", ".join(word for word in words if word not in but)

    def checked(value: Any, what: str) -> None:
        if word_of(words, value, what) in but:
            refuse(what, f"one of {wanted}", value)

    if not but:
        _SUFFICES[checked] = words
    return checked


def _maybe_kind(value: Any, what: str) -> None:
    if value is not None:
        word_of(Kind, value, what)


def _list(check: Check | None) -> Check:
    def checked(value: Any, what: str) -> None:
        if type(value) is not tuple and type(value) is not list:
            refuse(what, "a tuple", value)
        if check is not None:
            for index, item in enumerate(value):
                check(item, f"{what}[{index}]")

    if check is None:
        _SUFFICES[checked] = tuple
    return checked


def _set(check: Check | None) -> Check:
    def checked(value: Any, what: str) -> None:
        if not isinstance(value, frozenset | set):
            refuse(what, "a set", value)
        if check is not None:
            for item in value:
                check(item, f"{what} item")

    return checked


def _map(check: Check | None) -> Check:
    if check is None:
        return check_map

    def checked(value: Any, what: str) -> None:
        for name, item in (value if type(value) is dict else check_map(value, what)).items():
            check_name(name, f"a name in {what}")
            check(item, name)

    return checked


def _is_a(kind: type) -> Check:
    def checked(value: Any, what: str) -> None:
        check_kind(value, kind, what)

    _SUFFICES[checked] = kind
    return checked


def check_end(end: Any, name: str) -> None:
    """Refuse what is not a point in a log, or has numbers out of range."""
    if type(end) is not LogEnd:
        refuse(f"the end of {name}", "a LogEnd", end)
    for part, what in zip(end, LogEnd._fields, strict=True):
        check_count(part, f"{name}.{what}")


_BY_TYPE: dict[Any, Check | None] = {
    str: check_name,
    int: check_count,
    bool: check_flag,
    datetime: check_moment,
    LogEnd: check_end,
    SessionKey: _is_a(SessionKey),
    NewEvent: None,  # checked where they are encoded, like JSON
    Any: None,
}

_MAY_BE_EMPTY = (
    *("worker", "gone", "namespace", "source", "schema_version", "signal_id", "machine_id", "boot_id", "pid_namespace"),
    *("agent", "user_id", "tag", "parent"),
)
_BY_NAME: dict[str, Check | None] = {
    **dict.fromkeys(_MAY_BE_EMPTY, check_label),
    "ttl": check_ttl,
    "timeout": check_timeout,
    "delay": check_delay,
}

_BY_CLASS: dict[type, dict[str, Check | None]] = {
    BeginRun: {"invocation_id": check_id, "origin_id": check_id},
    EndRun: {"status": _word(RunStatus, RunStatus.RUNNING)},
    SettleWait: {"status": _word(WaitStatus, WaitStatus.OPEN)},
    Commit: {"status": _word(SessionStatus, SessionStatus.DELETED)},
    Lane: dict.fromkeys(("owner", "claimed_at", "expires_at", "displaced")),
    SessionRecord: {
        "session_id": check_id,
        "head": _is_a(SessionHead),
        **dict.fromkeys(("version", "created_at", "updated_at")),
    },
    SessionFilter: {"tenant": within, "kind": _maybe_kind},
}
"""Where a field's own check is not that of its annotation; with None it has none, since nobody reads it."""

RUN_REF = Shape(RunRef)
INPUT = Shape(NewInput)
USAGE = Shape(NewUsage)
OWNER = Shape(Owner)
LANE = Shape(Lane)
RECORD = Shape(SessionRecord)
FILTER = Shape(SessionFilter)
COMMIT = Shape(Commit)
