"""Reading waits."""

from datetime import datetime
from functools import partial

from tenuto.clock import to_micros
from tenuto.errors import InvalidInput
from tenuto.model.session import Key, Page, Tenant, as_key
from tenuto.model.wait import Wait, WaitStatus
from tenuto.quote import quote
from tenuto.store.backend import columns_of
from tenuto.store.facets.damage import read_sound
from tenuto.store.rules.encoding import moment
from tenuto.store.rules.limits import check_label, check_limit, check_name, check_text, check_word, within
from tenuto.store.rules.plan import Row
from tenuto.store.rules.records import joined, wait_of
from tenuto.store.rules.rows import WaitRow
from tenuto.store.store_context import StoreContext

_LONGEST = 16


class Waits:
    """The waits of sessions."""

    def __init__(self, store: StoreContext) -> None:
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

    async def below(self, key: Key) -> list[Wait]:
        """Return the open waits of the sessions below one: its children, their children, and so on."""
        return await self._read("waits_of_tree", *columns_of(as_key(key)))

    async def open(
        self,
        *,
        tenant: Tenant = "",
        kind: str | None = None,
        user_id: str | None = None,
        graph: str | None = None,
        opened_before: datetime | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Wait]:
        """Return a page of a tenant's open waits that fit every condition, in the order they were opened.

        A user's are those of the user's sessions and of the sessions below them that have no other user.
        `graph` means the pauses of that graph alone. A pause past its deadline, which nothing can answer, is left out.
        One that cannot be read is passed over and reported; `get` says what is wrong with it.
        """
        most, place = check_limit(limit), within(tenant)
        word = None if kind is None else check_name(kind, "kind")
        user = None if user_id is None else check_label(user_id, "user_id")
        times = (*_place(after), moment(opened_before, "opened_before"), self._store.now())
        given: tuple[object, ...]
        if graph is not None:
            query, given = "open_waits_of_graph", (place or "", check_name(graph, "graph"), *times)
        elif user is not None:
            query, given = "open_waits_of_user", (place, word, user, *times)
        elif place is None:
            query, given = "open_waits", (word, *times)
        elif word is not None:
            query, given = "open_waits_of_kind", (place, word, *times)
        else:
            query, given = "open_waits_of_tenant", (place, *times)
        found = await read_sound(partial(self._store.backend.read, query, *given), most + 1, _wait)
        page = Page[Wait](found[:most])
        if page and len(found) > most:
            page.next = f"{to_micros(page[-1].created_at)}:{page[-1].wait_id}"
        return page

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
    *columns, invocation_id = row
    return wait_of(*joined(WaitRow, tuple(columns)), invocation_id)


def _status(given: WaitStatus | None) -> str | None:
    return None if given is None else check_word(given, WaitStatus, "status")


def _place(after: str | None) -> tuple[int, str]:
    """Return what a page's `next` stands for: when its last wait was opened, and its id."""
    if after is None:
        return 0, ""
    at, _, wait_id = check_text(after, "after").partition(":")
    if not wait_id or not at.isascii() or not at.isdigit() or len(at) > _LONGEST:
        raise InvalidInput(f"{quote(after)} is not a cursor of this list; pass a page's `next`.", cursor=after)
    return int(at), wait_id
