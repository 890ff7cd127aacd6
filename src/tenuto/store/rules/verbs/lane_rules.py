"""The lane's own verbs: who gets it, and who frees it."""

from dataclasses import asdict

from tenuto.clock import to_datetime, to_duration
from tenuto.codec import encode
from tenuto.errors import SessionNotFound
from tenuto.model.lane import Displaced, Lane, Owner
from tenuto.model.session import SessionKey
from tenuto.store.rules.lane_row import busy, is_live, lane_lost, sealed
from tenuto.store.rules.limits import next_count
from tenuto.store.rules.plan import Found, Plan, found_after
from tenuto.store.rules.records import owner_of
from tenuto.store.rules.session_row import blank_row, check_life, session_write


def decide_acquire(
    key: SessionKey,
    owner: Owner,
    nonce: str,
    ttl: float,
    life: int | None,
    alive: bool,
    dead: tuple[int, Owner] | None,
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
    expires_at, until = now + to_duration(ttl), row.lane_expires_at or 0
    holder, since = owner_of(row.holder) if row.armed and row.holder else (None, now)
    displaced = None
    if row.armed and row.nonce == sealed(nonce):
        expires_at = max(expires_at, until)
        granted = row._replace(lane_expires_at=expires_at)
    elif is_live(row, now) and dead != (row.generation, holder):
        raise busy(key, row)
    else:
        if holder:
            displaced = Displaced(owner=holder, generation=row.generation, expires_at=to_datetime(until))
        since = now
        granted = row._replace(
            generation=next_count(row.generation, "the generation"),
            armed=1,
            nonce=sealed(nonce),
            holder=encode(asdict(owner) | {"claimed_at": now}),
            lane_expires_at=expires_at,
        )
    lane = Lane(
        key=key,
        life=row.life,
        generation=granted.generation,
        nonce=nonce,
        owner=owner,
        claimed_at=to_datetime(since),
        expires_at=to_datetime(expires_at),
        displaced=displaced,
    )
    return Plan(lane, [session_write(found, granted)], found_after(found, granted))


def decide_disarm(key: SessionKey, life: int, generation: int, nonce: str, found: Found) -> Plan[None]:
    """Free the lane at once, keeping owner and generation; only the holder can, and once."""
    row = found.session or blank_row(key, found)
    check_life(key, life, row)
    if row.generation != generation or row.nonce != sealed(nonce) or not row.armed:
        raise lane_lost(key, generation, row.generation)
    return Plan(None, [session_write(found, row._replace(armed=0))])
