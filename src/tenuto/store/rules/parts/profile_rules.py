"""A session's profile: which fields may change, and how they are kept."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from tenuto.argument import check_items, check_kind, check_map
from tenuto.codec import dumps, encode, loads_map
from tenuto.errors import CommitRefused, InvalidInput
from tenuto.ids import MAX_ID_BYTES, check_id
from tenuto.model.commit import MetadataChange
from tenuto.model.session import ForkPoint, Profile
from tenuto.store.rules.encoding import byte_size, moment
from tenuto.store.rules.limits import MAX_METADATA_BYTES, MAX_TAGS, check_count, check_label, check_text
from tenuto.store.rules.plan import Write
from tenuto.store.rules.rows import ProfileRow, SessionRow


def _tags(value: Any, what: str) -> str | None:
    tags = check_items(value, what)
    if len(tags) > MAX_TAGS:
        raise InvalidInput(f"{what} has {len(tags)} texts; at most {MAX_TAGS} are allowed.", what=what)
    return dumps([check_text(tag, f"a text in {what}", MAX_ID_BYTES) for tag in tags]) if tags else None


def _metadata(value: Any, what: str) -> str | None:
    values = check_map(value, what)
    if not values:
        return None
    text = dumps(dict(values), what)
    if byte_size(text) > MAX_METADATA_BYTES:
        raise InvalidInput(f"{what} has {byte_size(text)} bytes; at most {MAX_METADATA_BYTES} are allowed.", what=what)
    return text


def _point(value: Any, what: str) -> str:
    fork = check_kind(value, ForkPoint, what)
    point = {
        "session_id": check_id(fork.session_id, f"{what}.session_id"),
        "commit_number": check_count(fork.commit_number, f"{what}.commit_number"),
        "version": check_count(fork.version, f"{what}.version"),
    }
    return encode(point)


_PACKERS: dict[str, Callable[[Any, str], Any]] = {
    "agent": check_label,
    "title": check_text,
    "preview": check_text,
    "user_id": check_label,
    "tags": _tags,
    "metadata": _metadata,
    "definition": dumps,
    "policy": dumps,
    "mode": check_label,
    "workspace": check_text,
    "failure_reason": check_text,
    "trace": dumps,
    "expires_at": moment,
    "parent": check_label,
    "root": check_label,
    "forked_from": _point,
}

PROFILE_COLUMNS = frozenset(_PACKERS) - {"parent", "root", "forked_from"}
"""The fields a commit may change; parent, root and forked_from are fixed by the create."""


def pack_profile(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Encode profile changes as column values."""
    return {name: None if value is None else _PACKERS[name](value, name) for name, value in changes.items()}


def check_profile(profile: Profile) -> None:
    """Refuse a profile that could not be kept."""
    new_profile(0, profile)


def new_profile(
    sid: int, profile: Profile, forked_sid: int | None = None, parent: SessionRow | None = None
) -> ProfileRow:
    """Return the row of a new session's profile; it is a child of its parent in the life that has now."""
    check_kind(profile, Profile, "profile")
    packed = pack_profile({each.name: getattr(profile, each.name) for each in fields(profile)})
    parent_life = parent.life if parent and parent.alive else None
    return ProfileRow(session=sid, forked_sid=forked_sid, parent_life=parent_life, **packed)


def profile_write(row: ProfileRow) -> Write:
    """Return the write of a session's profile, without what is kept in the session's row."""
    return Write("put_profile", [row._replace(preview=None)])


def profile_meaning(profile: Profile) -> Sequence[Any]:
    """Return what counts of a new session's profile for the intent hash: what was given, not what was found."""
    return new_profile(0, profile)[:-1]


def merged_metadata(stored: str | None, change: MetadataChange) -> str | None:
    """Return a session's metadata with a change applied to it, as it is stored."""
    found = loads_map(stored, "metadata") if stored else {}
    kept = {name: value for name, value in found.items() if name not in change.removed}
    return _metadata(kept | dict(change.values), "metadata")


def changed_profile(row: ProfileRow, changes: Mapping[str, Any]) -> ProfileRow:
    """Return the row with packed changes applied; `mode`, once set, stays."""
    if row.mode is not None and changes.get("mode", row.mode) != row.mode:
        raise CommitRefused(f"mode is {row.mode!r} and can be set only once.", field="mode", found=row.mode)
    return row._replace(**changes)
