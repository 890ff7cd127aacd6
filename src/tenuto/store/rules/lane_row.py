"""The lane's columns on a session's row: whether somebody holds it, and the refusals that follow."""

from hashlib import sha256

from tenuto.clock import to_datetime
from tenuto.errors import LaneBusy, LaneLost
from tenuto.model.lane import LaneView
from tenuto.model.session import SessionKey
from tenuto.store.rules.records import key_of, owner_of
from tenuto.store.rules.rows import SessionRow


def is_live(row: SessionRow, now: int) -> bool:
    """Return whether a runner holds the lane now; at its expiry it does not."""
    return bool(row.armed) and (row.lane_expires_at or 0) > now


def sealed(nonce: str) -> str:
    """Return what is kept of a nonce: whoever reads the row cannot re-enter the lane with it."""
    return sha256(nonce.encode("utf-8", "surrogatepass")).hexdigest()


def busy(key: SessionKey, row: SessionRow) -> LaneBusy:
    """Say that somebody holds the lane and until when; the details name the holder, for an operator."""
    expires_at, holder = to_datetime(row.lane_expires_at or 0), owner_of(row.holder)[0] if row.holder else None
    return LaneBusy(
        f"{key} is held by another runner until {expires_at:%H:%M:%S} unless renewed; repeat when its turn has ended.",
        key=key,
        owner=holder.owner_id if holder else "nobody",
        generation=row.generation,
        expires_at=expires_at,
        holder=holder,
    )


def lane_lost(key: SessionKey, expected: int, found: int) -> LaneLost:
    """Say that the caller has lost its lane."""
    return LaneLost(
        f"The lane of {key} is not held under generation {expected} any more (now {found}); "
        "acquire it and reload before you continue.",
        key=key,
        expected=expected,
        found=found,
    )


def view_of(row: SessionRow, now: int) -> LaneView:
    """Describe a lane."""
    held = "held" if is_live(row, now) else "lapsed"
    return LaneView(
        key=key_of(row),
        state=held if row.armed else "free",
        generation=row.generation,
        owner=owner_of(row.holder)[0] if row.holder else None,
        expires_at=to_datetime(row.lane_expires_at) if row.lane_expires_at is not None else None,
    )
