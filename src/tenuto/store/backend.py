"""What a backend has to do: answer named reads, and apply a rule's named writes, all or none.

A backend keeps the rows of `rules.rows` and does not know what they mean. To add one, implement this protocol and
run `tenuto.testing.contract` against a `Store` built on it; docs/backends.md says how, step by step.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol, TypeVar

from tenuto.model.session import SessionKey
from tenuto.store.rules.plan import Plan, Row, Script

F = TypeVar("F")
T = TypeVar("T")

Reading = Callable[[], Script[F]]
"""Starts a reading script; a transaction that has to read again starts it again."""


class View(Protocol):
    """A consistent look at the store: every read sees the same instant."""

    async def read(self, name: str, *params: object) -> list[Row]:
        """Answer one named read."""


class Lock:
    """Which rows a transaction depends on, for backends that have to lock them."""

    def __init__(self, name: str, *params: object, at_once: bool = False) -> None:
        self.name = name
        self.params = params
        self.at_once = at_once


def columns_of(key: SessionKey) -> tuple[str, str, str]:
    """Return a key as the parameters of a read."""
    return key.tenant, str(key.kind), key.session_id


def session_lock(key: SessionKey) -> Lock:
    """Return the lock of one session."""
    return Lock("lock_session", *columns_of(key))


def family_lock(family: int) -> Lock:
    """Return the lock of a family of forks; taken at once, since a collection looks at all of it."""
    return Lock("lock_family", family, at_once=True)


class Warm(NamedTuple):
    """A commit that needs no more than its session's row and its run's: `run_id`, new if `begins`.

    One that `saves` needs more if its run is not at the head. `now` is the time a test has set.
    """

    key: SessionKey
    run_id: str
    begins: bool
    saves: bool
    now: int | None


class Backend(Protocol):
    """Where rows are kept."""

    name: str

    async def transact(
        self, read: Reading[F], decide: Callable[[F], Plan[T]], lock: Lock, *, size: int = 0, warm: Warm | None = None
    ) -> T:
        """Read, decide and write as one transaction, and return the plan's result once it is durable.

        `decide` is pure and may be called again when what was read no longer stands. A write with `must` that misses
        means just that. An error raised by `decide` leaves nothing behind. `size` is the number of bytes the plan is
        expected to write; with `warm`, a backend may try first with what the session's last plan left (`Plan.after`)
        instead of reading.
        """

    async def write(self, name: str, *params: object) -> list[Row]:
        """Run one named statement in its own transaction and return the rows it reports."""

    async def glance(self, name: str, *params: object) -> list[Row]:
        """Answer one named read of a row by its key, outside any view, in the cheapest way there is."""

    async def read(self, name: str, *params: object) -> list[Row]:
        """Answer one named read, which sees one instant by itself; several that must see the same need a view."""

    def view(self, *, at_one_instant: bool = True) -> AbstractAsyncContextManager[View]:
        """Open a view of the store; all its reads see the same instant, unless that is not asked for and costs more."""

    def watch(self, key: SessionKey) -> AbstractAsyncContextManager[AsyncIterator[None]]:
        """Yield whenever the session's stream may have grown; never busily, and never missing a change for good."""

    def announce(self, key: SessionKey) -> None:
        """Say that the session's stream has grown; called after the transaction that did it."""

    def check_use(self) -> None:
        """Refuse use as every other verb does: closed, or outside the event loop and process that opened it."""

    async def sibling(self) -> "Backend":
        """Open the same data once more, for use in another thread and event loop, with few connections."""

    async def vacuum(self, pages: int) -> tuple[int, int]:
        """Give free pages back to the file system; return how many, and how many are left."""

    async def aclose(self) -> None:
        """Finish what is under way and release everything; a second call does nothing."""
