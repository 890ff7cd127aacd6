"""The lane verbs: acquire, renew, disarm, look."""

from collections.abc import Iterable
from functools import partial

from tenuto.argument import check_flag, check_items
from tenuto.clock import to_datetime, to_duration
from tenuto.codec import encode
from tenuto.errors import LaneBusy
from tenuto.ids import new_id
from tenuto.model.lane import DEFAULT_TTL, Lane, LaneView, Owner, Renewal
from tenuto.model.run import Run, RunRef
from tenuto.model.session import Key, Kind, SessionKey, Tenant, as_key
from tenuto.store.backend import columns_of
from tenuto.store.facets.damage import read_sound
from tenuto.store.facets.runs import read_run
from tenuto.store.host import is_dead
from tenuto.store.rules.fields import LANE, OWNER, RUN_REF
from tenuto.store.rules.lane_row import sealed, view_of
from tenuto.store.rules.limits import check_count, check_limit, check_name, check_ttl, if_given, within
from tenuto.store.rules.plan import Ask
from tenuto.store.rules.rows import SessionRow, first_row
from tenuto.store.rules.verbs.lane_rules import decide_acquire, decide_disarm
from tenuto.store.store_context import StoreContext, transact


class Lanes:
    """The lanes of sessions."""

    def __init__(self, store: StoreContext) -> None:
        self._store = store

    async def acquire(
        self,
        key: Key,
        owner: Owner,
        *,
        nonce: str | None = None,
        ttl: float = DEFAULT_TTL,
        life: int | None = None,
        alive: bool = False,
    ) -> Lane:
        """Take the session's lane, under a generation that no lane of it had before.

        A live lane is `LaneBusy` for every other nonce, whoever asks, and its row does not change. The same nonce
        re-enters: same generation and claim time. A lapsed holder, and one on this host whose process is provably
        gone, is displaced and named in the result. With `life`, a session deleted meanwhile is `SessionDeleted`. An id
        without a live session gets a row that holds its lane, or, with `alive`, is `SessionNotFound`.
        """
        key, nonce = as_key(key), check_name(new_id() if nonce is None else nonce, "nonce")
        check_ttl(ttl)
        OWNER(owner, "owner")
        if_given(check_count, life, "life")
        check_flag(alive, "alive")
        decide = partial(decide_acquire, key, owner, nonce, ttl, life, alive)
        try:
            return await transact(self._store, Ask(key=key), partial(decide, None))
        except LaneBusy as refusal:
            holder = refusal.holder
            if holder is None or not is_dead(holder.host):
                raise
            dead = (refusal.generation, holder)
        return await transact(self._store, Ask(key=key), partial(decide, dead))

    async def renew(
        self, lanes: Iterable[Lane], *, ttl: float = DEFAULT_TTL, runs: Iterable[RunRef] = (), tenant: Tenant = ""
    ) -> Renewal:
        """Renew many lanes, and runs of a tenant without a lane, in one statement each.

        Each keeps its generation and nonce and never gets an earlier expiry. A lane with another generation or nonce,
        or disarmed, is named as lost while the others are renewed. A lapsed lane that nobody took is renewed.
        """
        now, term = self._store.now(), to_duration(check_ttl(ttl))
        lanes, runs = check_items(lanes, "lanes"), check_items(runs, "runs")
        for lane in lanes:
            LANE(lane, "lane")
        for run in runs:
            RUN_REF(run, "run")
        claims = encode([[*columns_of(lane.key), lane.life, lane.generation, sealed(lane.nonce)] for lane in lanes])
        rows = await self._store.backend.write("renew_lanes", now, term, claims) if lanes else []
        held = {(SessionKey(id_, tenant=tenant, kind=Kind(kind)), nonce) for tenant, kind, id_, nonce, _ in rows}
        alive: set[str] = set()
        if runs:
            refs = encode([[run.run_id, run.attempt] for run in runs])
            found = await self._store.backend.write("renew_runs", now, term, refs, within(tenant))
            alive = {run_id for run_id, _ in found}
        expires_at = min((row[-1] for row in rows), default=None)
        if expires_at is None:
            ((moment,),) = await self._store.backend.read("lease_moment", now)
            expires_at = moment + term
        return Renewal(
            expires_at=to_datetime(expires_at),
            renewed=frozenset(key for key, _ in held),
            lost=frozenset(lane.key for lane in lanes if (lane.key, sealed(lane.nonce)) not in held),
            lost_runs=frozenset(run.run_id for run in runs) - alive,
        )

    async def disarm(self, lane: Lane) -> None:
        """Free the lane at once; owner and generation stay on record.

        Stale, foreign or repeated: `LaneLost`, nothing changes.
        """
        LANE(lane, "lane")
        decide = partial(decide_disarm, lane.key, lane.life, lane.generation, lane.nonce)
        await transact(self._store, Ask(key=lane.key), decide)

    async def inspect(self, key: Key) -> LaneView | None:
        """Describe the lane, also a lapsed one; None if the id never had one. Nothing blocks or changes."""
        key = as_key(key)
        async with self._store.backend.view() as view:
            row = first_row(SessionRow, await view.read("session_by_key", *columns_of(key)))
            ((now,),) = await view.read("lease_moment", self._store.now())
        return view_of(row, now) if row and row.generation else None

    async def orphans(self, limit: int = 100) -> list[Run]:
        """Return running runs whose runner is gone.

        Lane lapsed, disarmed or taken, or renewal overdue; oldest first. One that cannot be read is passed over and
        reported.
        """
        ask = partial(self._store.backend.read, "orphans", self._store.now())
        return await read_sound(ask, check_limit(limit), read_run)
