"""A process of a run: opens the store, gets its faults and perhaps a bug, and is a worker, a client or a reader."""

import asyncio
import logging
import random
import signal
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenuto import SessionRuntime, Store, open_store
from tenuto.errors import StoreError, TenutoError
from tenuto.store.keeper import Keeper
from tenuto.testing.faults import FaultyBackend
from tests.chaos import bugs
from tests.chaos.client import Client
from tests.chaos.ledger import FAULT, UNTYPED, Ledger
from tests.chaos.programs import OutOfOrder, World, programs
from tests.chaos.reader import Reader

TTL, RENEW = 1.5, 0.4
"""How long a lane lives here: short, so that many are taken over."""

WORKER, CLIENT, READER = "worker", "client", "reader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """What a process is told when it begins; one that is calm loses no replies."""

    kind: str
    index: int
    incarnation: int
    seed: int
    address: str
    options: dict[str, Any] = field(default_factory=dict)
    folder: Path
    bug: str | None = None
    calm: bool = False

    @property
    def name(self) -> str:
        """Who it is, to the ledger."""
        return f"{self.kind}-{self.index}-{self.incarnation}"

    def dice(self, what: str = "") -> random.Random:
        """Return its own dice: a function of the seed and of who it is."""
        return random.Random(f"{self.seed}/{self.name}/{what}")


def serve(post: Post) -> None:
    """Be a process of the run, until told to leave."""
    warnings.simplefilter("error")
    ledger = Ledger(post.folder / "ledger" / f"{post.name}.jsonl")
    logging.basicConfig(filename=post.folder / f"{post.kind}.log", level=logging.INFO)
    logging.getLogger().addHandler(_Untyped(ledger))
    if post.bug is not None:
        bugs.plant(post.bug)
    asyncio.run(_serve(post, ledger))


async def _serve(post: Post, ledger: Ledger) -> None:
    leaving = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leaving.set)
    while not leaving.is_set():
        try:
            async with _opened(post, ledger) as (store, runtime):
                await _until(leaving, _work(post, ledger, store, runtime))
        except StoreError as error:  # the store could not be opened, or be closed: it is tried again
            ledger.write("reopened", error=repr(error))
            await asyncio.sleep(0.05)
        except Exception as error:
            ledger.write(UNTYPED, error=repr(error), where="process")
            raise


async def _work(post: Post, ledger: Ledger, store: Store, runtime: SessionRuntime) -> None:
    losing = asyncio.create_task(_lose_replies(store.backend, post))
    try:
        if post.kind == WORKER:
            await runtime.worker(4, poll=0.1).work()
        elif post.kind == CLIENT:
            await Client(post.name, post.index, post.folder, post.dice, store, runtime, ledger).work()
        else:
            await Reader(f"{post.kind}-{post.index}", post.folder, post.dice("reads"), runtime, ledger).work()
    finally:
        losing.cancel()
        with suppress(asyncio.CancelledError):
            await losing


async def _until(leaving: asyncio.Event, work: Any) -> None:
    """Work until told to leave; then what is under way is cut off."""
    working = asyncio.ensure_future(work)
    told = asyncio.ensure_future(leaving.wait())
    try:
        await asyncio.wait([working, told], return_when=asyncio.FIRST_COMPLETED)
    finally:
        told.cancel()
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working


@asynccontextmanager
async def _opened(post: Post, ledger: Ledger) -> AsyncIterator[tuple[Store, SessionRuntime]]:
    async with opened(post.address, post.options) as store:
        store.backend = Losing(store.backend, ledger)
        async with SessionRuntime(store, programs(World(post.folder, post.name))) as runtime:
            try:
                yield store, runtime
            finally:
                await store.aclose()  # turns under way are cut off, as whoever leaves in a hurry does it


@asynccontextmanager
async def opened(address: str, options: dict[str, Any]) -> AsyncIterator[Store]:
    """Open the store with the short lanes of a run."""
    async with open_store(address, **options) as store:
        store.keeper = Keeper(store, ttl=TTL, every=RENEW)
        yield store


class Losing(FaultyBackend):
    """A backend that loses replies when told to, and notes each that was lost."""

    def __init__(self, inner: Any, ledger: Ledger) -> None:
        super().__init__(inner)
        self._ledger = ledger

    def _after(self, lost: Exception | None) -> None:
        if lost is not None:
            self._ledger.write(FAULT, kind="lost reply")
        super()._after(lost)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


async def _lose_replies(backend: Any, post: Post) -> None:
    dice = post.dice("replies")
    while not post.calm:
        await asyncio.sleep(dice.uniform(0.3, 1.2))
        backend.lose_reply(dice.randint(1, 4))


class _Untyped(logging.Handler):
    """Notes what went wrong inside and is neither an error of ours nor one that a program raises on purpose."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(logging.WARNING)
        self._ledger = ledger

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, TenutoError | OutOfOrder):
            self._ledger.write(UNTYPED, error=repr(error), where=record.getMessage()[:300])
