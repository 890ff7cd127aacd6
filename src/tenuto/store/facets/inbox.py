"""The inbox verbs: enqueue, look, cancel."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from tenuto.codec import JSON, dumps
from tenuto.errors import InvalidInput, StoredDataCorrupt
from tenuto.model.input import Boundary, Cancelled, DuePage, Enqueued, Input, InputKind, NewInput, Nothing, Takeable
from tenuto.model.lane import HostProof
from tenuto.model.session import Key, SessionKey, Tenant, as_key
from tenuto.quote import quote
from tenuto.store.backend import columns_of
from tenuto.store.facets.damage import report, sound
from tenuto.store.facets.listing import read_cursor
from tenuto.store.host import is_dead
from tenuto.store.rules.commit.pack import check_budget
from tenuto.store.rules.encoding import byte_size, digest_of
from tenuto.store.rules.fields import INPUT
from tenuto.store.rules.limits import check_count, check_ids, check_limit, check_name, check_text, check_word, within
from tenuto.store.rules.parts.input_rules import PackedInput, pack_input
from tenuto.store.rules.plan import Ask, Row
from tenuto.store.rules.records import joined, key_of, maybe_time, owner_of, stored_key
from tenuto.store.rules.rows import InputRow, SessionRow, first_row
from tenuto.store.rules.verbs.inbox_rules import (
    InboxLook,
    decide_cancel,
    decide_enqueue,
    decide_refuse,
    decide_take,
    input_of,
)
from tenuto.store.rules.verbs.stop_rules import decide_interrupt
from tenuto.store.store_context import StoreContext, transact


class Inbox:
    """The durable input of sessions. It is consumed by commits (`Commit.inputs`, `Commit.consume`)."""

    def __init__(self, store: StoreContext) -> None:
        self._store = store

    async def enqueue(self, key: Key, new: NewInput, *, interrupts: str | None = None) -> Enqueued:
        """Store an input of a live, active session and return it with the lane as found; it is durable then.

        The same key and content again returns the first row, whatever its status; other content under a known key
        is `OperationConflict`. No live session is `SessionNotFound`, any other status `StatusRefused`. Takes one event
        number, which is the input's place in the order, and writes an event `input_queued`. Input for a boundary is
        bound to the live run; where that has ended, or there is none, it is for the next turn. A run that is not
        this session's is `RunNotLive`.

        With `interrupts`, a reason, the run under way is asked to stop in the same transaction, as by
        `runs.request_stop`; so it is by a repeat that finds its input still open, if that run began before it came in.
        """
        key = as_key(key)
        packed = self.packed(new)
        if interrupts is not None:
            check_text(interrupts, "interrupts")
            if new.boundary is not None:
                raise InvalidInput("Input for a boundary of a run cannot interrupt that run.")
        ask = Ask(
            key=key,
            run_id=new.run_id or "",
            current_run=interrupts is not None or (new.boundary is not None and new.run_id is None),
            input_keys=(new.key,) if new.key is not None else (),
        )
        decide = partial(decide_enqueue, key, packed)
        if interrupts is not None:
            decide = partial(decide_interrupt, key, packed, interrupts)
        enqueued = await transact(self._store, ask, decide, len(packed.body))
        if not enqueued.replayed or enqueued.stop is not None:
            self._store.backend.announce(key)
        return enqueued

    def packed(self, new: NewInput) -> PackedInput:
        """Check and encode an input that is to be queued."""
        INPUT(new, "input")
        if new.leads:
            raise InvalidInput("Only a commit can bring an input that leads.")
        if new.log is not None or new.item is not None:
            raise InvalidInput("A queued input has no entry yet; the commit that consumes it names it.")
        packed = pack_input(new, "input")
        check_budget(byte_size(packed.body), 1, self._store.budget)
        return packed

    async def get(self, input_id: str, *, tenant: Tenant = "") -> Input | None:
        """Return a tenant's input by its minted id, whatever its status, or None; another tenant's is unknown."""
        named = (check_name(input_id, "input_id"), within(tenant))
        rows = await self._store.backend.glance("input_with_session", *named)
        return _input(rows[0]) if rows else None

    def digest(self, kind: InputKind, body: JSON) -> str:
        """Return the digest under which an input's content is known, to compare it with a stored one."""
        return digest_of(check_word(kind, InputKind, "kind"), dumps(body, "body"))

    async def find(self, key: Key, input_key: str) -> Input | None:
        """Return the input of a live session that was sent with this key, or None."""
        named = (*columns_of(as_key(key)), check_name(input_key, "input_key"))
        rows = await self._store.backend.glance("input_of_session", *named)
        return _input(rows[0]) if rows else None

    async def list(self, key: Key, *, limit: int = 100, after: int | None = None) -> tuple[Input, ...]:
        """Return a session's open inputs in order of arrival; `after` continues behind a `seq`."""
        params = (-1 if after is None else check_count(after, "after"), check_limit(limit))
        rows = await self._store.backend.read("open_inputs", *columns_of(as_key(key)), *params)
        return tuple(map(_input, rows))

    async def cancel(self, key: Key, ids: Sequence[str]) -> dict[str, Cancelled]:
        """Cancel open inputs of a session in one transaction; return for each id what happened to it.

        A consumed one stays consumed, and an id that is not of this session is unknown. The body goes with the cancel.
        """
        key = as_key(key)
        wanted = check_ids(ids, "input_ids")
        return await transact(self._store, Ask(key=key, inputs=wanted), partial(decide_cancel, wanted))

    async def refuse(self, key: Key, input_id: str, error: JSON) -> bool:
        """Settle an open input of a session as refused, with the reason; return whether it was still open.

        For what nobody will ever be able to take. Needs no lane. The reason takes the place of the body, and an event
        `input_refused` reports it.
        """
        key = as_key(key)
        check_budget(byte_size(dumps(error, "error")), 1, self._store.budget)
        ask = Ask(key=key, inputs=(check_name(input_id, "input_id"),))
        refused = await transact(self._store, ask, partial(decide_refuse, key, input_id, error))
        if refused:
            self._store.backend.announce(key)
        return refused

    async def next(
        self, key: Key, *, boundary: Boundary | None = None, run_id: str | None = None, limit: int = 100
    ) -> Takeable:
        """Return what a runner may take now, or why there is nothing. Reads only.

        Between turns (`boundary=None`) it is the oldest due input for a turn: a command never passes older input, and
        none is skipped. At a boundary of a run (the session's current one, unless named) it is the input meant for
        it there, in order, up to the first command that is older.
        """
        if boundary is not None:
            check_word(boundary, Boundary, "boundary")
        if run_id is not None:
            check_name(run_id, "run_id")
        most = check_limit(limit)
        now, place = self._store.now(), boundary and str(boundary)
        key = as_key(key)
        async with self._store.backend.view() as view:
            session = first_row(SessionRow, await view.read("session_by_key", *columns_of(key)))
            if session is None:
                return Takeable(reason=Nothing.EMPTY)
            run = None if boundary is None else run_id or session.current_run
            ((opened, next_due, command, seq),) = await view.read("inbox_look", now, session.sid, place, run)
            rows = await view.read("due_inputs", now, session.sid, place, run, most)
        look = InboxLook(open=bool(opened), next_due=next_due, command=None if command is None else (seq, command))
        return decide_take(boundary, look, [InputRow(*row) for row in rows], key)

    async def first(self, key: Key) -> Input | None:
        """Return the one input `next` gives between turns, or None, without a reason. One cheap read."""
        key = as_key(key)
        rows = await self._store.backend.glance("first_input", self._store.now(), *columns_of(key))
        return input_of(InputRow(*rows[0]), key) if rows else None

    async def due(self, *, limit: int = 100, after: str | None = None) -> DuePage:
        """Return active sessions that have due input and that no runner holds, in pages. Reads only."""
        most = check_limit(limit)
        rows = await self._store.backend.read("due_sessions", self._store.now(), read_cursor(after) or 0, most + 1)
        page = DuePage(key for row in rows[:most] if (key := _due_key(row)) is not None)
        page.next = str(rows[most - 1][0]) if most and len(rows) > most else None
        return page

    async def stranded(self, *, limit: int = 100) -> Sequence[SessionKey]:
        """Return sessions that have due input and whose holder, on this host, is provably gone. Reads only.

        `due` does not name them before the lane lapses; it can be taken at once. The first `limit` that are held are
        looked at, those first whose lanes lapse first: the dead are not renewed.
        """
        rows = await self._store.backend.read("held_sessions", self._store.now(), check_limit(limit))
        held, _ = sound(rows, _held)
        dead = {host for host in {host for _, host in held} if is_dead(host)}
        return [key for key, host in held if host in dead]

    async def next_due(self) -> datetime | None:
        """Return when `due` next names a session as things stand, for a worker to sleep until; None if never.

        That is when input falls due, or when the lane of the runner that holds its session lapses, if later: a past
        time means now, and held sessions do not keep a worker awake. Reads only.
        """
        ((moment,),) = await self._store.backend.read("next_input")
        due: datetime | None = maybe_time(moment, "the next due time of the inbox")
        return due


def _due_key(row: Row) -> SessionKey | None:
    _, tenant, kind, session_id = row
    try:
        return stored_key(tenant, kind, session_id)
    except StoredDataCorrupt as error:
        report(f"due input of {quote(session_id)}", error)
        return None


def _held(row: Row) -> tuple[SessionKey, HostProof | None]:
    session = SessionRow(*row)
    return key_of(session), owner_of(session.holder)[0].host if session.holder else None


def _input(row: Row) -> Input:
    return input_of(*joined(InputRow, row))
