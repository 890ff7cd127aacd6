"""The rules of the lane: who gets it, who holds it, who has lost it."""

from dataclasses import asdict
from hashlib import sha256

from tenuto.clock import to_datetime, to_duration
from tenuto.codec import encode
from tenuto.errors import LaneBusy, SessionNotFound
from tenuto.model.lane import Displaced, HostProof, Lane, LaneView, Owner
from tenuto.model.session import SessionKey
from tenuto.store.rules.commit.session_row import blank_row, check_life, lane_lost, session_write
from tenuto.store.rules.limits import next_count
from tenuto.store.rules.plan import Found, Plan, found_after
from tenuto.store.rules.records import key_of, owner_of
from tenuto.store.rules.rows import SessionRow


def is_live(row: SessionRow, now: int) -> bool:
    """Tell whether a runner holds the lane now; at its expiry it does not."""
    return bool(row.armed) and (row.lane_expires_at or 0) > now


def sealed(nonce: str) -> str:
    """Return what is kept of a nonce: whoever reads the row cannot re-enter the lane with it."""
    return sha256(nonce.encode("utf-8", "surrogatepass")).hexdigest()


def holder_name(row: SessionRow) -> str:
    """Name the holder, or last holder, for an error."""
    return owner_of(row.holder)[0].owner_id if row.holder else "nobody"


def busy(key: SessionKey, row: SessionRow) -> LaneBusy:
    """Say that somebody holds the lane and until when; who it is, the details tell an operator."""
    expires_at = to_datetime(row.lane_expires_at or 0)
    return LaneBusy(
        f"{key} is held by another runner until {expires_at:%H:%M:%S} unless renewed; repeat when its turn has ended.",
        key=key,
        owner=holder_name(row),
        generation=row.generation,
        expires_at=expires_at,
        holder=owner_of(row.holder)[0] if row.holder else None,
    )


def decide_acquire(
    key: SessionKey,
    owner: Owner,
    nonce: str,
    ttl: float,
    dead: tuple[int, Owner] | None,
    life: int | None,
    alive: bool,
    found: Found,
) -> Plan[Lane]:
    """Grant the lane, re-enter it by its nonce, or refuse as busy.

    `dead` is a generation and its holder whose process is proven gone; it counts as lapsed.
    """
    now = found.lease
    row = found.session or blank_row(key, found)
    if life is not None:
        check_life(key, life, row)
    if alive and not row.alive:
        raise SessionNotFound(f"There is no {key}; create it first.", key=key)
    expires_at = now + to_duration(ttl)
    holder, since = owner_of(row.holder) if row.armed and row.holder else (None, now)
    if row.armed and row.nonce == sealed(nonce):
        expires_at = max(expires_at, row.lane_expires_at or 0)
        granted = row._replace(lane_expires_at=expires_at)
        lane = _lane(granted, owner, nonce, since, None)
        return Plan(lane, [session_write(found, granted)], found_after(found, granted))
    if is_live(row, now) and dead != (row.generation, holder):
        raise busy(key, row)
    displaced = None
    if holder:
        displaced = Displaced(
            owner=holder,
            generation=row.generation,
            expires_at=to_datetime(row.lane_expires_at or 0),
        )
    granted = row._replace(
        generation=next_count(row.generation, "the generation"),
        armed=1,
        nonce=sealed(nonce),
        holder=encode(asdict(owner) | {"claimed_at": now}),
        lane_expires_at=expires_at,
    )
    lane = _lane(granted, owner, nonce, now, displaced)
    return Plan(lane, [session_write(found, granted)], found_after(found, granted))


def decide_disarm(key: SessionKey, life: int, generation: int, nonce: str, found: Found) -> Plan[None]:
    """Free the lane at once, keeping owner and generation; only the holder can, and once."""
    row = found.session or blank_row(key, found)
    check_life(key, life, row)
    if row.generation != generation or row.nonce != sealed(nonce) or not row.armed:
        raise lane_lost(key, generation, row.generation)
    return Plan(None, [session_write(found, row._replace(armed=0))])


def view_of(row: SessionRow, now: int) -> LaneView:
    """Describe a lane as it stands."""
    held = "held" if is_live(row, now) else "lapsed"
    return LaneView(
        key=key_of(row),
        state=held if row.armed else "free",
        generation=row.generation,
        owner=owner_of(row.holder)[0] if row.holder else None,
        expires_at=to_datetime(row.lane_expires_at) if row.lane_expires_at is not None else None,
    )


def same_host(holder: HostProof | None, here: HostProof) -> bool:
    """Tell whether a holder ran where we run; a missing value means that nobody can tell."""
    if holder is None or holder.pid is None or holder.started is None:
        return False
    places = (
        (holder.machine_id, here.machine_id),
        (holder.boot_id, here.boot_id),
        (holder.pid_namespace, here.pid_namespace),
    )
    return all(theirs is not None and theirs == ours for theirs, ours in places)


def _lane(row: SessionRow, owner: Owner, nonce: str, claimed_at: int, displaced: Displaced | None) -> Lane:
    assert row.lane_expires_at is not None
    return Lane(
        key=key_of(row),
        life=row.life,
        generation=row.generation,
        nonce=nonce,
        owner=owner,
        claimed_at=to_datetime(claimed_at),
        expires_at=to_datetime(row.lane_expires_at),
        displaced=displaced,
    )
