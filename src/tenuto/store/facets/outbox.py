"""The outbox verbs: what is to be delivered, and how far it has come."""

from datetime import datetime
from functools import partial

from tenuto.argument import check_kind
from tenuto.clock import to_micros
from tenuto.codec import JSON, dumps
from tenuto.model.outgoing_item import Outgoing, OutgoingStatus
from tenuto.model.session import Key, Tenant, as_key
from tenuto.store.backend import Lock, columns_of, session_lock
from tenuto.store.facets.damage import read_sound
from tenuto.store.rules.commit.pack import check_budget
from tenuto.store.rules.encoding import byte_size
from tenuto.store.rules.limits import (
    check_count,
    check_delay,
    check_limit,
    check_moment,
    check_name,
    check_word,
    if_given,
    within,
)
from tenuto.store.rules.parts.outgoing_rules import decide_mark, gather_outgoing, outgoing_of
from tenuto.store.rules.plan import Row
from tenuto.store.rules.records import joined, maybe_time
from tenuto.store.rules.rows import OutgoingRow
from tenuto.store.rules.verbs.outbox_rules import decide_refuse_outgoing
from tenuto.store.store_context import StoreContext


class Outbox:
    """Work that commits caused elsewhere (`Commit.outgoing`).

    To deliver is to enqueue on the target with the outbox id as key, then to mark: done twice it is one input.
    """

    def __init__(self, store: StoreContext) -> None:
        self._store = store

    async def get(self, outbox_id: str, *, tenant: Tenant = "") -> Outgoing | None:
        """Return a tenant's outgoing item by its minted id, or None; another tenant's is unknown."""
        named = (check_name(outbox_id, "outbox_id"), within(tenant))
        rows = await self._store.backend.read("outgoing_by_id", *named)
        return _outgoing(rows[0]) if rows else None

    async def of_session(self, key: Key, *, limit: int = 1000, after: Outgoing | None = None) -> list[Outgoing]:
        """Return what a session sent, in the order of sending; `after` continues behind an item."""
        place = (None, "") if after is None else _place(after)
        rows = await self._store.backend.read(
            "outgoing_of_session", *columns_of(as_key(key)), *place, check_limit(limit)
        )
        return list(map(_outgoing, rows))

    async def pending(self, *, limit: int = 100) -> list[Outgoing]:
        """Return items of all sessions that are pending and due, the longest due first. Reads only.

        One that cannot be read is passed over and reported; `get` says what is wrong with it.
        """
        ask = partial(self._store.backend.read, "pending_outgoing", self._store.now())
        return await read_sound(ask, check_limit(limit), _outgoing)

    async def next_due(self) -> datetime | None:
        """Return when the first pending item falls due, for a worker to sleep until; None if nothing is pending.

        A past time means that `pending` has something now. Reads only.
        """
        ((moment,),) = await self._store.backend.read("next_outgoing")
        due: datetime | None = maybe_time(moment, "the next due time of the outbox")
        return due

    async def mark(
        self,
        outbox_id: str,
        status: OutgoingStatus,
        *,
        expected: OutgoingStatus = OutgoingStatus.PENDING,
        attempts: int | None = None,
        retry_in: float | None = None,
        tenant: Tenant = "",
    ) -> Outgoing:
        """Move an item on, counting a try, if it still has the status and, if given, the attempts expected.

        `retry_in` makes it due again after so many seconds; a try that failed marks it pending so. Otherwise, for an
        item that is unknown (its sender deleted, or of another tenant), done or expired, and for a stale deliverer:
        `DeliveryLost`.
        """
        check_name(outbox_id, "outbox_id")
        wanted = OutgoingStatus(check_word(status, OutgoingStatus, "status"))
        before = OutgoingStatus(check_word(expected, OutgoingStatus, "expected"))
        if_given(check_count, attempts, "attempts")
        if_given(check_delay, retry_in, "delay")
        return await self._store.backend.transact(
            partial(gather_outgoing, outbox_id, within(tenant), self._store.now()),
            partial(decide_mark, outbox_id, wanted, before, attempts, retry_in),
            Lock("lock_outgoing", outbox_id),
        )

    async def refuse(self, item: Outgoing, error: JSON) -> Outgoing:
        """Settle a pending item as refused, with the reason in place of its body: its target will never take it.

        An event `outgoing_refused` of the sender reports it. An item that is not as given is `DeliveryLost`, as for
        `mark`.
        """
        check_kind(item, Outgoing, "item")
        check_budget(byte_size(dumps(error, "error")), 1, self._store.budget)
        refused = await self._store.backend.transact(
            partial(gather_outgoing, item.outbox_id, item.key.tenant, self._store.now()),
            partial(decide_refuse_outgoing, item.outbox_id, error, item.attempts),
            session_lock(item.key),
        )
        self._store.backend.announce(item.key)
        return refused


def _place(item: Outgoing) -> tuple[int, str]:
    check_kind(item, Outgoing, "after")
    return to_micros(check_moment(item.created_at, "after.created_at")), check_name(item.outbox_id, "after.outbox_id")


def _outgoing(row: Row) -> Outgoing:
    return outgoing_of(*joined(OutgoingRow, row))
