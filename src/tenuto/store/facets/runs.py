"""Reading runs, checkpoints and waits, and asking a run to stop."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tenuto.argument import check_kind
from tenuto.codec import encode
from tenuto.ids import check_tenant
from tenuto.model.checkpoint import Checkpoint
from tenuto.model.run import Run, Stop, StopAnswer, StopKind, StopReply
from tenuto.model.session import Key, SessionKey, Tenant, as_key
from tenuto.model.wait import Wait, WaitStatus
from tenuto.store.backend import View, columns_of, session_lock
from tenuto.store.damage import read_sound
from tenuto.store.facets.logs import read_document
from tenuto.store.rules.limits import check_count, check_ids, check_limit, check_name, check_text, check_word, within
from tenuto.store.rules.plan import Ask, Found, Plan, Row, gather
from tenuto.store.rules.records import checkpoint_of, key_of, run_of, stop_of, wait_of
from tenuto.store.rules.rows import CheckpointRow, RunRow, SessionRow, WaitRow
from tenuto.store.rules.verbs.stop_rules import decide_stop, decide_withdraw, unknown_run

if TYPE_CHECKING:
    from tenuto.store.store import Store

_SESSION = len(SessionRow._fields)


class Runs:
    """The runs of sessions; each came from a commit that began it."""

    def __init__(self, store: "Store") -> None:
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
        """Return runs under way under a lane, the longest first, whatever became of their runners.

        One that cannot be read is passed over and reported.
        """
        return await read_sound(partial(self._store.backend.read, "running_runs"), check_limit(limit), _run)

    async def current(self, key: Key) -> Run | None:
        """Return the run last begun under the session's lane, or None."""
        return _first(await self._store.backend.glance("current_run", *columns_of(as_key(key))))

    async def stops(self, run_ids: Sequence[str], *, tenant: Tenant = "") -> dict[str, Stop]:
        """Return the stops standing on these runs of a tenant, by run id, in one read; a run without one is left out.

        An ended run keeps the stop it had, and an unknown one has none.
        """
        wanted = encode(check_ids(run_ids, "run_ids"))
        rows = await self._store.backend.read("stops_of_runs", wanted, within(tenant))
        found = ((run_id, stop_of(text, f"run {run_id}")) for run_id, text in rows)
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

        The request stands on the run's row, so it outlives asker and runner and never hits a later run. From then on
        the run ends neither as completed nor as suspended (`StopRequested`). An abort takes the place of an interrupt.
        Writes an event `stop_requested`. An unknown or deleted run is `RunNotLive`, and so is one of another tenant,
        or, if `session` is given, which then names the tenant too, of another session.
        """
        check_word(kind, StopKind, "kind")
        if reason is not None:
            check_text(reason, "reason")
        if session is not None:
            check_kind(session, SessionKey, "session")
        run = await self._known(run_id, session.tenant if session else tenant)
        if session is not None and run.key != session:
            raise unknown_run(run_id)
        return await self._decide(run, partial(decide_stop, run.key, run_id, StopKind(kind), reason))

    async def withdraw_stop(self, run_id: str, *, tenant: Tenant = "") -> StopReply:
        """Take a stop back: withdrawn, seen by the run and final, none there, or the run has ended.

        Writes an event `stop_withdrawn`. An unknown or deleted run, or another tenant's, is `RunNotLive`.
        """
        run = await self._known(run_id, tenant)
        return await self._decide(run, partial(decide_withdraw, run.key, run_id))

    async def _known(self, run_id: str, tenant: Tenant) -> Run:
        run = await self.get(check_name(run_id, "run_id"), tenant=tenant)
        if run is None:
            raise unknown_run(run_id)
        return run

    async def _decide(self, run: Run, decide: Callable[[Found], Plan[StopReply]]) -> StopReply:
        read = partial(gather, Ask(key=run.key, run_id=run.run_id), self._store.now())
        reply = await self._store.backend.transact(read, decide, session_lock(run.key))
        if reply.answer in (StopAnswer.RECORDED, StopAnswer.WITHDRAWN):
            self._store.backend.announce(run.key)
        return reply

    async def _read(self, query: str, *params: object) -> list[Run]:
        rows = await self._store.backend.read(query, *params)
        return list(map(_run, rows))


class Checkpoints:
    """The checkpoints of sessions, ordered by commit number.

    The latest is the last written, whatever its step count.
    """

    def __init__(self, store: "Store") -> None:
        self._store = store

    async def latest(self, key: Key, *, run_id: str | None = None) -> Checkpoint | None:
        """Return the last written checkpoint of a session, or of one of its runs."""
        return next(iter(await self.of_session(key, run_id=run_id, limit=1)), None)

    async def get(self, key: Key, commit_number: int) -> Checkpoint | None:
        """Return the checkpoint a commit wrote, or None."""
        number = check_count(commit_number, "commit_number")
        found = await self._read("checkpoints_of_session", as_key(key), number + 1, 1)
        return found[0] if found and found[0].commit_number == number else None

    async def of_session(
        self, key: Key, *, run_id: str | None = None, limit: int = 100, before: int | None = None
    ) -> list[Checkpoint]:
        """Return checkpoints, newest first; `before` continues below a commit number."""
        below = 2**53 if before is None else check_count(before, "before")
        most = check_limit(limit)
        if run_id is None:
            return await self._read("checkpoints_of_session", as_key(key), below, most)
        return await self._read("checkpoints_of_run", as_key(key), check_name(run_id, "run_id"), below, most)

    async def points(
        self, key: Key, *, before: int | None = None, after: int | None = None, limit: int = 100
    ) -> list[Checkpoint]:
        """Return the session's own checkpoints, which no run wrote for itself.

        Newest first, below the commit number `before` if that is given; with `after`, oldest first above it.
        """
        most = check_count(limit, "limit")
        if after is not None:
            return await self._read("points_after", as_key(key), check_count(after, "after"), most)
        below = 2**53 if before is None else check_count(before, "before")
        return await self._read("points_before", as_key(key), below, most)

    async def _read(self, query: str, key: SessionKey, *params: object) -> list[Checkpoint]:
        async with self._store.backend.view() as view:
            rows = await view.read(query, *columns_of(key), *params)
            return [await _checkpoint(view, key, CheckpointRow(*row)) for row in rows]


class Waits:
    """The waits of sessions."""

    def __init__(self, store: "Store") -> None:
        self._store = store

    async def get(self, wait_id: str, *, tenant: Tenant = "") -> Wait | None:
        """Return a tenant's wait by its minted id, or None; another tenant's is unknown."""
        named = (check_name(wait_id, "wait_id"), within(tenant))
        return next(iter(await self._read("wait_with_session", *named)), None)

    async def of_session(
        self, key: Key, *, run_id: str | None = None, status: WaitStatus | None = WaitStatus.OPEN
    ) -> list[Wait]:
        """Return a session's waits in the order they were opened; `status=None` means all."""
        of_run = None if run_id is None else check_name(run_id, "run_id")
        return await self._read("waits_of_session", *columns_of(as_key(key)), of_run, _status(status))

    async def of_invocation(self, key: Key, origin_id: str) -> list[Wait]:
        """Return the waits of all runs of a session that go back to this invocation, open or settled.

        They come in the order they were opened; a pruned run's went with it.
        """
        return await self._read("waits_of_origin", *columns_of(as_key(key)), check_name(origin_id, "origin_id"))

    async def open(self, *, tenant: Tenant = "", limit: int = 100, after: str = "") -> list[Wait]:
        """Return a tenant's open waits, in the order they were opened; `after` goes on behind an id.

        One that cannot be read is passed over and reported; `get` says what is wrong with it.
        """
        place = (within(tenant), check_text(after, "after"))
        return await read_sound(partial(self._store.backend.read, "open_waits", *place), check_limit(limit), _wait)

    async def for_signal(
        self, signal_id: str, *, tenant: Tenant = "", status: WaitStatus | None = WaitStatus.OPEN
    ) -> list[Wait]:
        """Return the waits of a tenant for the program's own signal id, in the order they were opened."""
        named = (within(tenant), check_text(signal_id, "signal_id"))
        return await self._read("waits_for_signal", *named, _status(status))

    async def _read(self, query: str, *params: object) -> list[Wait]:
        rows = await self._store.backend.read(query, *params)
        return list(map(_wait, rows))


def _wait(row: Row) -> Wait:
    return wait_of(WaitRow(*row[_SESSION:]), key_of(SessionRow(*row[:_SESSION])))


def _status(given: WaitStatus | None) -> str | None:
    return None if given is None else check_word(given, WaitStatus, "status")


def _first(rows: Sequence[Row]) -> Run | None:
    return _run(rows[0]) if rows else None


def _run(row: Row) -> Run:
    return run_of(RunRow(*row[_SESSION:]), key_of(SessionRow(*row[:_SESSION])))


async def _checkpoint(view: View, key: SessionKey, row: CheckpointRow) -> Checkpoint:
    document = await read_document(view, key, row.document, row.held, f"checkpoint {row.commit_no} of {key}")
    return checkpoint_of(row, key, document)
