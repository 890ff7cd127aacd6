"""Reading runs, and asking one to stop."""

from collections.abc import Callable, Sequence
from functools import partial

from tenuto.argument import check_kind
from tenuto.codec import encode
from tenuto.ids import check_tenant
from tenuto.model.run import Run, Stop, StopAnswer, StopKind, StopReply
from tenuto.model.session import Key, SessionKey, Tenant, as_key
from tenuto.store.backend import columns_of
from tenuto.store.facets.damage import read_sound
from tenuto.store.rules.limits import check_count, check_ids, check_limit, check_name, check_text, check_word, within
from tenuto.store.rules.plan import Ask, Found, Plan, Row
from tenuto.store.rules.records import joined, run_of, stop_of
from tenuto.store.rules.rows import RunRow
from tenuto.store.rules.verbs.stop_rules import decide_stop, decide_withdraw, unknown_run
from tenuto.store.store_context import StoreContext, transact


class Runs:
    """The runs of sessions; each came from a commit that began it."""

    def __init__(self, store: StoreContext) -> None:
        self._store = store

    async def get(self, run_id: str, *, tenant: Tenant = "") -> Run | None:
        """Return a tenant's run by its id, or None; another tenant's is unknown."""
        named = (check_name(run_id, "run_id"), within(tenant))
        return _first(await self._store.backend.glance("run_by_id", *named))

    async def of_session(self, key: Key, *, limit: int = 100, before: int | None = None) -> list[Run]:
        """Return a session's runs, newest first; `before` continues below a run's number."""
        below = 2**53 if before is None else check_count(before, "before")
        return await self._read("runs_of_session", *columns_of(as_key(key)), below, check_limit(limit))

    async def of_invocation(self, invocation_id: str, *, tenant: str = "") -> list[Run]:
        """Return all runs of an invocation, oldest first."""
        named = (check_tenant(tenant), check_name(invocation_id, "invocation_id"))
        return await self._read("runs_of_invocation", *named)

    async def running(self, *, limit: int = 100) -> list[Run]:
        """Return runs under way under a lane, the longest first, whether their runners live or not.

        One that cannot be read is passed over and reported.
        """
        return await read_sound(partial(self._store.backend.read, "running_runs"), check_limit(limit), read_run)

    async def resumable(self, *, tenant: Tenant = "", limit: int = 100, after: str = "") -> list[Run]:
        """Return a tenant's runs that failed or were interrupted and left a checkpoint, by id; `after` continues.

        That is the run with the last checkpoint of its invocation, if no later one runs, waits or is complete. One that
        cannot be read is passed over and reported.
        """
        place = (within(tenant), check_text(after, "after"))
        ask = partial(self._store.backend.read, "resumable_runs", *place)
        return await read_sound(ask, check_limit(limit), read_run)

    async def current(self, key: Key) -> Run | None:
        """Return the run last begun under the session's lane, or None."""
        return _first(await self._store.backend.glance("current_run", *columns_of(as_key(key))))

    async def stops(self, run_ids: Sequence[str], *, tenant: Tenant = "") -> dict[str, Stop]:
        """Return the stops standing on these runs of a tenant, by run id, in one read; a run without one is left out.

        An ended run keeps the stop it had, and an unknown one has none.
        """
        wanted = encode(check_ids(run_ids, "run_ids"))
        rows = await self._store.backend.read("stops_of_runs", wanted, within(tenant))
        found = ((run_id, stop_of(text, f"run {run_id} stop")) for run_id, text in rows)
        return {run_id: stop for run_id, stop in found if stop is not None}

    async def request_stop(
        self,
        run_id: str,
        kind: StopKind = StopKind.INTERRUPT,
        reason: str | None = None,
        *,
        tenant: Tenant = "",
        session: SessionKey | None = None,
    ) -> StopReply:
        """Ask a run to stop and return at once: recorded, already asked, or ended, with its status.

        The request is stored in the run's row, so it outlives asker and runner and never hits a later run. From then on
        the run ends neither as completed nor as suspended (`StopRequested`). An abort takes the place of an interrupt.
        Writes an event `stop_requested`. An unknown or deleted run is `RunNotLive`, and so is one of another tenant,
        or, if `session` is given, which then names the tenant too, of another session.
        """
        check_word(kind, StopKind, "kind")
        if reason is not None:
            check_text(reason, "reason")
        run = await self._known(run_id, tenant, session)
        return await self._decide(run, partial(decide_stop, run.key, run_id, StopKind(kind), reason))

    async def withdraw_stop(self, run_id: str, *, tenant: Tenant = "", session: SessionKey | None = None) -> StopReply:
        """Take a stop back: withdrawn, seen by the run and final, none there, or the run has ended.

        Writes an event `stop_withdrawn`. An unknown or deleted run is `RunNotLive`, and so is one of another tenant or
        session, as for `request_stop`.
        """
        run = await self._known(run_id, tenant, session)
        return await self._decide(run, partial(decide_withdraw, run.key, run_id))

    async def _known(self, run_id: str, tenant: Tenant, session: SessionKey | None) -> Run:
        if session is not None:
            tenant = check_kind(session, SessionKey, "session").tenant
        run = await self.get(check_name(run_id, "run_id"), tenant=tenant)
        if run is None or session not in (None, run.key):
            raise unknown_run(run_id)
        return run

    async def _decide(self, run: Run, decide: Callable[[Found], Plan[StopReply]]) -> StopReply:
        reply = await transact(self._store, Ask(key=run.key, run_id=run.run_id), decide)
        if reply.answer in (StopAnswer.RECORDED, StopAnswer.WITHDRAWN):
            self._store.backend.announce(run.key)
        return reply

    async def _read(self, query: str, *params: object) -> list[Run]:
        rows = await self._store.backend.read(query, *params)
        return list(map(read_run, rows))


def _first(rows: Sequence[Row]) -> Run | None:
    return read_run(rows[0]) if rows else None


def read_run(row: Row) -> Run:
    """Read a run from its columns, which follow those of its session."""
    return run_of(*joined(RunRow, row))
