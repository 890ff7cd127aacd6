"""The stream verbs: append a batch, read after a cursor, subscribe."""

from collections.abc import AsyncIterator, Sequence
from functools import partial

from tenuto.argument import check_items
from tenuto.errors import CursorBeyondTail, InvalidInput
from tenuto.model.event import EventPage, NewEvent
from tenuto.model.lane import Lane
from tenuto.model.run import RunRef
from tenuto.model.session import Key, as_key
from tenuto.store.backend import columns_of
from tenuto.store.rules.commit.pack import check_budget, pack_events
from tenuto.store.rules.encoding import byte_size
from tenuto.store.rules.fields import LANE, RUN_REF
from tenuto.store.rules.limits import MAX_LIMIT, check_count, check_name, if_given
from tenuto.store.rules.plan import Ask
from tenuto.store.rules.rows import EventRow, SessionRow, first_row
from tenuto.store.rules.verbs.event_rules import decide_events, read_events
from tenuto.store.store_context import StoreContext, transact


class Events:
    """The streams of sessions: numbered from 1 without gaps, the same on every read."""

    def __init__(self, store: StoreContext) -> None:
        self._store = store

    async def append(
        self, lane: Lane, events: Sequence[NewEvent], *, run: RunRef | None = None, after: int | None = None
    ) -> int:
        """Write events outside a commit, under the lane, as one row, and return the stream's last number.

        A taken lane is `LaneLost`, a run that is not live `RunNotLive`. With `after`, the stream must end there
        (`StreamMoved` otherwise): so a lost reply is resolved by reading, not by writing twice.
        """
        LANE(lane, "lane")
        if_given(RUN_REF, run, "run")
        if_given(check_count, after, "after")
        events = check_items(events, "events")
        body = pack_events(events)
        if body is None:
            raise InvalidInput("A batch needs at least one event.")
        check_budget(byte_size(body), len(events), self._store.budget)
        ask = Ask(key=lane.key, run_id=run.run_id if run else "")
        decide = partial(decide_events, lane, run, after, body, len(events))
        last = await transact(self._store, ask, decide, len(body))
        self._store.backend.announce(lane.key)
        return last

    async def read(self, key: Key, *, after: int = 0, run_id: str | None = None, limit: int = 1000) -> EventPage:
        """Return the events after a cursor, which is excluded, at most about `limit` of them; `run_id` keeps one run's.

        No page has more than 10,000 rows of them, whatever the limit: `next` is where to read on.

        Below the retention floor the page says `truncated`. Ahead of the tail is `CursorBeyondTail`. An unknown
        session has an empty stream.
        """
        check_count(after, "after")
        most = min(check_count(limit, "limit"), MAX_LIMIT)
        if_given(check_name, run_id, "run_id")
        key = as_key(key)
        async with self._store.backend.view() as view:
            row = first_row(SessionRow, await view.read("session_by_key", *columns_of(key)))
            tail, floor = (row.event_seq, row.event_floor) if row else (0, 0)
            if after > tail:
                raise CursorBeyondTail(
                    f"The stream of {key} ends at {tail}; the cursor {after} belongs to another session or store.",
                    key=key,
                    cursor=after,
                    tail=tail,
                )
            start = max(after, floor)
            stored = [] if row is None else await view.read("events_after", row.sid, start, run_id, most)
        found = [EventRow(*event) for event in stored]
        return EventPage(
            events=tuple(read_events(found, start)),
            truncated=after < floor,
            floor=floor,
            tail=tail,
            next=tail if len(found) < most else found[-1].last_seq if found else after,
        )

    async def subscribe(self, key: Key, *, after: int = 0, run_id: str | None = None) -> AsyncIterator[EventPage]:
        """Yield pages of events after a cursor, stored ones first, then live ones as they land; each event exactly
        once.

        Waits at the tail without busy polling. A page is yielded when it has events or is `truncated`.
        """
        key = as_key(key)
        async with self._store.backend.watch(key) as changes:
            while True:
                page = await self.read(key, after=after, run_id=run_id)
                after = page.next
                if page.events or page.truncated:
                    yield page
                if after < page.tail:
                    continue
                await anext(changes)
