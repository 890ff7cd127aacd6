"""The processes of a run: started, killed, stopped, let go, and always there again."""

import asyncio
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from typing import Any

from tests.chaos.plan import CLIENTS, READERS, WORKERS
from tests.chaos.process import CLIENT, READER, WORKER, Post, serve

# Forked from a server that has imported everything and opened nothing, a process is there in no time.
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["asyncpg", "apsw", "tests.chaos.process"])

_PATIENCE = 20.0

Place = tuple[str, int]


class Crew:
    """One process at each place; one that was killed, or left, is followed by another."""

    def __init__(self, post: Callable[..., Post]) -> None:
        self._post = post
        self._places: dict[Place, ForkServerProcess] = {}
        self._incarnations: Counter[Place] = Counter()
        self.died: list[str] = []

    def start(self) -> None:
        """Start everybody."""
        for kind, count in ((WORKER, WORKERS), (CLIENT, CLIENTS), (READER, READERS)):
            for index in range(count):
                self._begin((kind, index))

    async def calm(self) -> None:
        """Let clients go, and workers be followed by some that have no faults of their own."""
        await self.dismiss(CLIENT, WORKER)
        for index in range(WORKERS):
            self._begin((WORKER, index), calm=True)

    def _begin(self, place: Place, *, calm: bool = False) -> None:
        self._incarnations[place] += 1
        told = self._post(kind=place[0], index=place[1], incarnation=self._incarnations[place], calm=calm)
        process = _server.Process(target=serve, args=(told,))
        process.start()
        self._places[place] = process

    def kill(self, whom: int) -> bool:
        """Kill somebody, and let another begin."""
        place = self._pick(whom, (WORKER, CLIENT, READER))
        process = self._places[place]
        alive = process.is_alive()
        process.kill()
        process.join()
        self._begin(place)
        return alive

    async def stand_still(self, whom: int, seconds: float) -> bool:
        """Let a worker or a client stand still, threads and all, until its lanes have lapsed."""
        process = self._places[self._pick(whom, (WORKER, CLIENT))]
        if not _signal(process, signal.SIGSTOP):
            return False
        try:
            await asyncio.sleep(seconds)
        finally:
            _signal(process, signal.SIGCONT)
        return True

    async def leave(self, whom: int) -> bool:
        """Tell a client to leave, whatever it is waiting for, and let another begin."""
        place = self._pick(whom, (CLIENT,))
        process = self._places[place]
        if not _signal(process, signal.SIGTERM):
            return False
        await self._gone(process, 3.0)
        if self._places[place] is process:
            self._begin(place)
        return True

    def look(self) -> None:
        """Note who ended without having been told to, and put another in its place."""
        for place, process in list(self._places.items()):
            if process.exitcode is not None:
                if process.exitcode not in (0, -signal.SIGKILL):
                    self.died.append(f"{place[0]}-{place[1]}-{self._incarnations[place]} ended: {process.exitcode}")
                self._begin(place)

    async def dismiss(self, *kinds: str) -> None:
        """Tell all of some kinds to leave, and wait for it."""
        going = [(place, process) for place, process in self._places.items() if place[0] in kinds]
        for _, process in going:
            _signal(process, signal.SIGCONT)
            _signal(process, signal.SIGTERM)
        for place, process in going:
            await self._gone(process, _PATIENCE)
            del self._places[place]

    async def _gone(self, process: Any, seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while process.exitcode is None and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        process.kill()
        process.join()

    def abandon(self) -> None:
        """End everybody."""
        for process in self._places.values():
            process.kill()
            process.join()
        self._places.clear()

    def _pick(self, whom: int, kinds: tuple[str, ...]) -> Place:
        places = [place for place in self._places if place[0] in kinds]
        return places[whom % len(places)]


def _signal(process: Any, number: int) -> bool:
    with suppress(ProcessLookupError):
        if process.exitcode is None:
            os.kill(process.pid, number)
            return True
    return False
