"""Stops: asked of any run, and found by the runs of this process."""

import asyncio

from tenuto.errors import RunNotLive, TenutoError
from tenuto.model.run import RunStatus, Stop, StopKind, StopReply
from tenuto.model.session import ANY_TENANT, SessionKey
from tenuto.runtime.run.runner import Runner
from tenuto.runtime.session.info import head_of
from tenuto.runtime.session.tenancy import stands_above
from tenuto.store.store import Store

STOP_POLL = 0.2
"""How often the runs of this process are checked for stops, in seconds."""


async def stop_run(
    store: Store, runner: Runner, key: SessionKey, run_id: str, kind: StopKind, reason: str | None
) -> StopReply:
    """Record a stop on a run of a session, and tell it at once if it runs here; another session's is unknown."""
    reply = await store.runs.request_stop(run_id, kind, reason, session=key)
    if reply.stop is not None and reply.status is RunStatus.RUNNING:
        tell_stop(runner, run_id, reply.stop)
    return reply


def tell_stop(runner: Runner, run_id: str, stop: Stop) -> None:
    """Tell a run of a stop that is on record, if it runs here."""
    live = runner.live.get(run_id)
    if live is not None:
        live.ask_to_stop(stop)


async def run_to_stop(store: Store, key: SessionKey) -> str:
    """Return the run of a session that a stop is for, if none is named: its last one."""
    run = await store.runs.current(key)
    if run is None:
        await head_of(store, key)
        raise RunNotLive(f"{key} has never run; there is nothing to stop.", key=key, run_id="", found="none")
    return run.run_id


async def run_below(store: Store, key: SessionKey, run_id: str) -> SessionKey:
    """Return the session of a run that may be stopped in the name of another: its own, or one below it."""
    run = await store.runs.get(run_id, tenant=key.tenant)
    if run is not None and run.key != key and await stands_above(store, key, run.key):
        return run.key
    return key


class StopWatch:
    """Looks now and then whether a live run was asked to stop elsewhere; while none is live it does nothing."""

    def __init__(self, store: Store, runner: Runner) -> None:
        self._store = store
        self._runner = runner
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Look from now on, as long as there are live runs."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(STOP_POLL, self._look)

    def end(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._runner.live:
            self._task = asyncio.create_task(self._find())

    async def _find(self) -> None:
        try:
            stops = await self._store.runs.stops(list(self._runner.live), tenant=ANY_TENANT)
        except TenutoError:
            stops = {}
        for run_id, stop in stops.items():
            live = self._runner.live.get(run_id)
            if live is not None and (live.stop is None or live.stop.kind is not stop.kind):
                live.ask_to_stop(stop)
        if self._runner.live:
            self.watch()
