"""The lane: the lease that lets one runner at a time change a session."""

from dataclasses import dataclass
from datetime import datetime

from tenuto.model.session import SessionKey

DEFAULT_TTL = 15.0
"""How long a lane, or a run without one, belongs to its runner without a renewal, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProof:
    """The values that prove, on the same host, that a process is gone; a missing value proves nothing.

    The ids of machine and boot are digests, which can only be compared.
    """

    machine_id: str | None = None
    boot_id: str | None = None
    pid_namespace: str | None = None
    pid: int | None = None
    started: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The taker of a lane: a stable name, and the incarnation that is running now."""

    owner_id: str
    incarnation: str
    host: HostProof | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Displaced:
    """The holder whose lane was taken over, as found in the same transaction."""

    owner: Owner
    generation: int
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A granted lane. `generation` fences every write; only the same `nonce` re-enters."""

    key: SessionKey
    life: int
    generation: int
    nonce: str
    owner: Owner
    claimed_at: datetime
    expires_at: datetime
    displaced: Displaced | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneView:
    """The current state of a lane: `free` to take, `held` by a live holder, or `lapsed`."""

    key: SessionKey
    state: str
    generation: int
    owner: Owner | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """What one renewal of many lanes and runs did: the new expiry, and what was renewed or lost.

    If both a stale and the current lane of a session were named, it is in `renewed` and in `lost`.
    """

    expires_at: datetime
    renewed: frozenset[SessionKey]
    lost: frozenset[SessionKey]
    lost_runs: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rearm:
    """Arm a disarmed lane again without acquiring it: same generation, new nonce."""

    nonce: str
    ttl: float
