"""The session runtime: a declaration of what holds sessions, and how it is opened, worked and closed."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tenuto.errors import WrongLoop
from tenuto.ids import check_tenant
from tenuto.model.lane import LaneTiming
from tenuto.runtime.change.hooks import Hook
from tenuto.runtime.lifetime import Lifetime
from tenuto.runtime.machinery import Options
from tenuto.runtime.operator import Operator
from tenuto.runtime.program.program import Program
from tenuto.runtime.queue.worker import POLL_SECONDS, Worker
from tenuto.runtime.sessions import Sessions
from tenuto.runtime.stream.notices import Listener
from tenuto.runtime.turn.context import DEFAULT_STEPS
from tenuto.store.open import Opening
from tenuto.store.store import Store
from tenuto.words import InDoubt, RetryFailed, WhenBusy
from tenuto.writing.lru import DEFAULT_BYTES

if TYPE_CHECKING:
    from tenuto.runtime.blocking_face import BlockingRuntime


class SessionRuntime(Sessions):
    """Declares what holds sessions: a store, programs, hooks, policies. `async with` opens it.

    A module declares it once; workers, servers and scripts open it by `module:name` and so all run the same thing. It
    opens nothing by itself and never changes. It can be opened again and again, in one event loop at a time; to open it
    in two at once, or on another store, use `using`. A store that is passed open stays the caller's; an address, or
    `open_store(...)` that was not awaited, is opened and closed with the runtime. Without a store, sessions are kept in
    memory.

    Its own verbs are those of the default tenant; `for_tenant` has those of another.

    `in_doubt` decides about tool calls whose result was lost with a runner. `when_busy` is what verbs do by
    default with a message to a busy session, and `retry_failed` what they do with one that is sent again under its key
    after its turn failed for a transient reason: resume the turn, or return its outcome unchanged. `steps` bounds a
    turn, `lanes` times the leases of sessions, `cache_bytes` bounds what is kept of idle ones, and `worker_name` names
    this runner to others (by default, host and process).
    Without `tracebacks`, the record of a failed run does not say in which files and lines its error was raised.
    """

    def __init__(
        self,
        store: str | Opening | Store | None = None,
        programs: Program[Any] | Iterable[Program[Any]] = (),
        *,
        hooks: Iterable[Hook] = (),
        listeners: Iterable[Listener] = (),
        actions: Iterable[type[Any]] = (),
        in_doubt: InDoubt = "ask",
        when_busy: WhenBusy | None = None,
        retry_failed: RetryFailed = "retryable",
        steps: int = DEFAULT_STEPS,
        lanes: LaneTiming | None = None,
        cache_bytes: int = DEFAULT_BYTES,
        tracebacks: bool = True,
        worker_name: str | None = None,
    ) -> None:
        options = Options.checked(
            programs,
            hooks,
            listeners,
            actions,
            in_doubt=in_doubt,
            when_busy=when_busy,
            retry_failed=retry_failed,
            steps=steps,
            lanes=lanes,
            cache_bytes=cache_bytes,
            tracebacks=tracebacks,
            worker_name=worker_name,
        )
        super().__init__(Lifetime(store, options), "")

    @property
    def store(self) -> Store:
        """The store of the open runtime."""
        return self._lifetime.parts().store

    @property
    def programs(self) -> Mapping[str, Program[Any]]:
        """The programs that sessions run here, by `name@version`."""
        return self._lifetime.options.programs.by_name

    @property
    def is_open(self) -> bool:
        """Whether the runtime is open in this process."""
        return self._lifetime.is_open

    async def __aenter__(self) -> "SessionRuntime":
        await self._lifetime.enter()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._lifetime.leave()

    async def aclose(self) -> None:
        """Wait for the turns that were started here and close what was opened, as the end of `async with` does."""
        await self._lifetime.leave()

    def using(
        self, store: str | Opening | Store | None = None, *, listeners: Iterable[Listener] = ()
    ) -> "SessionRuntime":
        """Return the same declaration on another store, or with more listeners; it opens and closes by itself."""
        options, other = self._lifetime.options, copy(self)
        more = replace(options, listeners=options.listeners.and_also(listeners))
        other._lifetime = Lifetime(self._lifetime.store if store is None else store, more)
        return other

    @property
    def declared_store(self) -> Opening | Store | None:
        """What the runtime opens: an address with its options; a store that was passed; or None, which is memory."""
        return self._lifetime.store

    def for_tenant(self, tenant: str) -> Sessions:
        """Return the sessions of a tenant, for code that must not see those of another."""
        return Sessions(self._lifetime, check_tenant(tenant))

    def across_tenants(self) -> Operator:
        """Return what operators see: the sessions of every tenant."""
        return Operator(self._lifetime)

    def blocking(self) -> "AbstractContextManager[BlockingRuntime]":
        """Open the same declaration for code without an event loop: `with runtime.blocking() as rt: rt.send(...)`.

        It runs in one event loop in one thread, beside any other opening; any thread may call. Inside a running event
        loop, a call raises `WrongLoop`.
        """
        from tenuto.runtime.blocking_face import opened

        if isinstance(self._lifetime.store, Store):
            raise WrongLoop(
                "A store that was passed open belongs to the event loop that opened it; declare the runtime with the "
                "store's address to use it without one."
            )
        return opened(self.using())

    async def work(self, concurrency: int = 8) -> None:
        """Run as a worker: do what is due in any session of any tenant, until cancelled."""
        await self.worker(concurrency).work()

    async def drain(self, concurrency: int = 8) -> None:
        """Do everything that is due now, in any session of any tenant, and return."""
        await self.worker(concurrency).work(until_idle=True)

    def worker(self, concurrency: int = 8, *, poll: float = POLL_SECONDS) -> Worker:
        """Return a worker of this runtime, for a host that shuts it down with `finish`."""
        parts = self._lifetime.parts()
        return Worker(parts.store, parts.dispatcher, parts.deliveries, concurrency=concurrency, poll=poll)
