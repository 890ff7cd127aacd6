"""The lane: the lease that lets one runner at a time change a session."""

import math
from dataclasses import dataclass
from datetime import datetime

from tenuto.errors import InvalidInput
from tenuto.model.session import SessionKey
from tenuto.quote import quote

DEFAULT_TTL = 15.0
"""How long a lane, or a run without one, belongs to its runner without a renewal, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTiming:
    """For how long lanes are granted, how often they are renewed, and how long a turn waits for one, in seconds.

    Three renewals must fit into the time of a grant, so that one that fails can be tried again.
    """

    ttl: float = DEFAULT_TTL
    renew: float = DEFAULT_TTL / 3
    wait: float = 30.0

    def __post_init__(self) -> None:
        for name in ("ttl", "renew", "wait"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 < value < math.inf:
                raise InvalidInput(f"`{name}` of lanes must be a number of seconds above 0, got {quote(value)}.")
        if self.ttl < 3 * self.renew:
            raise InvalidInput(
                f"Lanes of {self.ttl:g} s cannot be renewed every {self.renew:g} s: `ttl` must be at least three times "
                "`renew`.",
                ttl=self.ttl,
                renew=self.renew,
            )


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
