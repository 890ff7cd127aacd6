"""The session runtime: create sessions and run their turns, which survive requests, restarts and workers."""

import asyncio
import logging
from collections.abc import Iterable
from copy import copy
from typing import Any

from tenuto.argument import refuse
from tenuto.model.lane import Owner
from tenuto.model.session import Key, Tenant
from tenuto.runtime.change.hooks import Controller
from tenuto.runtime.handle import SessionHandle
from tenuto.runtime.machinery import Machinery, Options
from tenuto.runtime.program.program import Program, Programs
from tenuto.runtime.queue.sender import WhenBusy
from tenuto.runtime.queue.worker import POLL_SECONDS, Worker
from tenuto.runtime.session.tenancy import Tenancy
from tenuto.runtime.sessions import Sessions
from tenuto.runtime.stream.notices import Listener, Listeners
from tenuto.runtime.turn.context import DEFAULT_STEPS, Continuation
from tenuto.runtime.turn.effect_journal import InDoubt
from tenuto.store.open import memory_store
from tenuto.store.store import Store
from tenuto.writing.lane_claim import DEFAULT_LANE_WAIT
from tenuto.writing.lru import DEFAULT_BYTES

_log = logging.getLogger("tenuto.runtime")


class SessionRuntime(Sessions):
    """Holds sessions: one identity, one state, one conversation each, and the turns of their programs.

    Every verb takes a session's id, or its full key. A missing session raises `SessionNotFound`. Without a store it
    keeps sessions in memory and logs a warning. `owner` names this runner to others, for hosts that serialise turns
    themselves; by default it is this process. `in_doubt` decides about tool calls whose result was lost with a runner.

    Plain ids belong to the default tenant, and so do ids of runs, waits and inputs: another tenant's are unknown.
    `for_tenant` returns the same runtime as a tenant's callers are to see it.
    """

    def __init__(
        self,
        store: Store | None = None,
        programs: Iterable[Program] = (),
        hooks: Controller | Iterable[Controller] | None = None,
        listeners: Iterable[Listener] = (),
        *,
        in_doubt: InDoubt | str = InDoubt.ASK,
        owner: Owner | None = None,
        steps: int = DEFAULT_STEPS,
        actions: Iterable[type[Any]] = (),
        when_busy: WhenBusy | str = WhenBusy.REJECT,
        lane_wait: float = DEFAULT_LANE_WAIT,
        warm_bytes: int = DEFAULT_BYTES,
    ) -> None:
        if store is None:
            store = memory_store()
            _log.warning("No store was passed: sessions are kept in memory and are lost when this process ends.")
        options = Options(programs, hooks, listeners, in_doubt, owner, steps, actions, when_busy, lane_wait, warm_bytes)
        super().__init__(Machinery(store, options), Tenancy())

    @property
    def programs(self) -> Programs:
        """The programs that sessions run here."""
        return self._parts.programs

    @property
    def listeners(self) -> Listeners:
        """Who is notified of what happens here."""
        return self._parts.listeners

    def for_tenant(self, tenant: Tenant) -> "SessionRuntime":
        """Return a view of this runtime whose verbs read and write within one tenant.

        Plain ids are resolved in it, a key of another tenant raises `InvalidInput`, and whatever belongs to another
        tenant is refused exactly like something that does not exist. The view shares this runtime's cached sessions,
        tasks and listeners, and is closed with it. `ANY_TENANT`, for operators, finds any tenant's runs, waits, inputs.
        """
        tenancy = self._tenancy.narrowed(tenant)
        if tenancy == self._tenancy:
            return self
        view = copy(self)
        view._tenancy = tenancy
        return view

    def open(self, session_id: Key, store: Store | None = None) -> SessionHandle:
        """Return a handle on a session; if `store` is passed, it is used instead of the runtime's."""
        runtime = self
        if store is not None:
            runtime = copy(self)
            runtime._parts, runtime._tasks = Machinery(store, self._parts.options), set()
        return SessionHandle(runtime, self._key(session_id))

    async def __aenter__(self) -> "SessionRuntime":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Wait for the turns that this runtime has started; the store stays open. A second call does nothing.

        A tenant's view is closed with its runtime.
        """
        if self._tenancy != Tenancy():
            return
        while under_way := [*self._tasks, *self._parts.sender.background]:
            await asyncio.gather(*under_way, return_exceptions=True)
        self._parts.live.close()

    async def advance(self, session_id: Key, *, should_continue: Continuation | None = None) -> bool:
        """Do what is due for one session, unless another runner holds it; return whether anything was done.

        `should_continue` is called before each turn; False leaves the rest to other workers.
        """
        if should_continue is not None and not callable(should_continue):
            refuse("should_continue", "a function", should_continue)
        return (await self._parts.dispatcher.advance(self._key(session_id), should_continue=should_continue)).worked

    async def deliver(self) -> int:
        """Deliver the items that sessions sent each other and that are due; return how many there were."""
        self._tenancy.check_everywhere("deliver")
        return await self._parts.deliveries.deliver_due()

    async def work(self, concurrency: int = 8, *, poll: float = POLL_SECONDS) -> None:
        """Run as a worker: do what is due in any session of any tenant, until cancelled."""
        self._tenancy.check_everywhere("work")
        await self.worker(concurrency, poll=poll).work()

    async def drain(self, concurrency: int = 8) -> None:
        """Do everything that is due now, in any session of any tenant, and return."""
        self._tenancy.check_everywhere("drain")
        await self.worker(concurrency).work(until_idle=True)

    def worker(self, concurrency: int = 8, *, poll: float = POLL_SECONDS) -> Worker:
        """Return a worker of this runtime, for a host that shuts it down with `finish`."""
        return Worker(self.store, self._parts.dispatcher, self._parts.deliveries, concurrency=concurrency, poll=poll)
