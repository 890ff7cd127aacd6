"""The turns that run in this process, and the stops requested of them."""

import asyncio
from collections.abc import Iterator

from tenuto.argument import word_of
from tenuto.errors import RunNotLive, TenutoError
from tenuto.model.run import RunStatus, Stop, StopKind, StopReply
from tenuto.model.session import ANY_TENANT, SessionKey
from tenuto.runtime.session.ancestry import stands_above
from tenuto.runtime.session.info import head_of
from tenuto.runtime.turn.context import TurnContext
from tenuto.store.store import Store

STOP_POLL = 0.2
"""How often the runs of this process are checked for stops, in seconds."""


class LiveTurns:
    """The turns of this process by run id; while there are any, the store is polled for stops requested elsewhere."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turns: dict[str, TurnContext] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def __iter__(self) -> Iterator[TurnContext]:
        return iter(self._turns.values())

    def add(self, turn: TurnContext) -> None:
        """Count a turn as running here."""
        self._turns[turn.run_id] = turn
        self._watch()

    def remove(self, turn: TurnContext) -> None:
        """Count a turn as over."""
        self._turns.pop(turn.run_id, None)

    def stop(self, run_id: str, stop: Stop) -> None:
        """Pass a recorded stop to its run, if that runs here."""
        turn = self._turns.get(run_id)
        if turn is not None:
            turn.ask_to_stop(stop)

    async def request_stop(self, key: SessionKey, run_id: str, kind: str, reason: str | None) -> StopReply:
        """Record a stop for a run of this session, and pass it on at once if it runs here; other runs are unknown."""
        reply = await self._store.runs.request_stop(run_id, word_of(StopKind, kind, "stop"), reason, session=key)
        if reply.stop is not None and reply.status is RunStatus.RUNNING:
            self.stop(run_id, reply.stop)
        return reply

    def close(self) -> None:
        """Stop polling."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(STOP_POLL, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._turns:
            self._task = asyncio.create_task(self._find())

    async def _find(self) -> None:
        try:
            stops = await self._store.runs.stops(list(self._turns), tenant=ANY_TENANT)
        except TenutoError:
            stops = {}
        for run_id, stop in stops.items():
            turn = self._turns.get(run_id)
            if turn is not None and (turn.stop is None or turn.stop.kind is not stop.kind):
                turn.ask_to_stop(stop)
        if self._turns:
            self._watch()


async def run_to_stop(store: Store, key: SessionKey) -> str:
    """Return the run that a stop without a run id is for: the session's last one; `RunNotLive` if it never ran."""
    run = await store.runs.current(key)
    if run is None:
        await head_of(store, key)
        raise RunNotLive(f"{key} has never run; there is nothing to stop.", key=key, run_id="", found="none")
    return run.run_id


async def session_of_run(store: Store, key: SessionKey, run_id: str) -> SessionKey:
    """Return the session of a run if that is below `key` in its tree; otherwise `key` itself."""
    run = await store.runs.get(run_id, tenant=key.tenant)
    if run is not None and run.key != key and await stands_above(store, key, run.key):
        return run.key
    return key
