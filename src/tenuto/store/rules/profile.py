"""A session's profile: which fields may change, and how they are kept."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from tenuto.clock import to_micros
from tenuto.codec import dumps, encode
from tenuto.errors import CommitRefused, InvalidInput
from tenuto.model.session import Profile
from tenuto.store.rules.limits import check_text
from tenuto.store.rules.rows import ProfileRow


def _text(value: Any, what: str) -> str:
    return check_text(value, what)


def _tags(value: Any, what: str) -> str | None:
    if isinstance(value, str) or not all(type(tag) is str for tag in value):
        raise InvalidInput(f"{what} must be a list of texts.", what=what)
    return dumps([check_text(tag, what) for tag in value]) if value else None


def _metadata(value: Any, what: str) -> str | None:
    return dumps(dict(value), what) if value else None


def _time(value: Any, what: str) -> int:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidInput(f"{what} must be a datetime with a time zone.", what=what)
    return to_micros(value)


_PACKERS: dict[str, Callable[[Any, str], Any]] = {
    "agent": _text,
    "title": _text,
    "preview": _text,
    "user_id": _text,
    "tags": _tags,
    "metadata": _metadata,
    "definition": dumps,
    "policy": dumps,
    "mode": _text,
    "workspace": _text,
    "failure_reason": _text,
    "trace": dumps,
    "expires_at": _time,
}

PROFILE_COLUMNS = frozenset(_PACKERS)
"""The fields a commit may change; parent, root and forked_from are fixed by the create."""


def pack_profile(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Encode profile changes as column values."""
    return {name: None if value is None else _PACKERS[name](value, name) for name, value in changes.items()}


def new_profile(sid: int, profile: Profile, forked_sid: int | None = None) -> ProfileRow:
    """Return the row of a new session's profile."""
    changes = {f.name: getattr(profile, f.name) for f in fields(profile) if f.name in PROFILE_COLUMNS}
    fork = profile.forked_from
    point = (
        {"session_id": fork.session_id, "commit_number": fork.commit_number, "version": fork.version} if fork else None
    )
    return ProfileRow(
        session=sid,
        parent=_fixed(profile.parent, "parent"),
        root=_fixed(profile.root, "root"),
        forked_from=encode(point) if point else None,
        forked_sid=forked_sid,
        **pack_profile(changes),
    )


def changed_profile(row: ProfileRow, changes: Mapping[str, Any]) -> ProfileRow:
    """Return the row with packed changes applied; `mode`, once set, stays."""
    if row.mode is not None and changes.get("mode", row.mode) != row.mode:
        raise CommitRefused(f"mode is {row.mode!r} and can be set only once.", field="mode", found=row.mode)
    return row._replace(**changes)


def _fixed(value: str | None, what: str) -> str | None:
    return None if value is None else check_text(value, what)
