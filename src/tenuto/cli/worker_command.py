"""`tenuto worker`: does what is due in any session of a store, until it is told to end."""

import asyncio
import inspect
import json
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

import typer

from tenuto.cli.places import Address, AsJson, Schema, named, opening
from tenuto.errors import TenutoError
from tenuto.graph.compiled import CompiledGraph
from tenuto.model.run import RunStatus
from tenuto.model.session import SessionKey
from tenuto.runtime.program.program import Program
from tenuto.runtime.queue.worker import POLL_SECONDS, Worker, connections_for, tune_gc_for_worker
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.stream.notices import Notice, RunEnded
from tenuto.store.store import Store

LEFT_UNDER_WAY = 1

_ENDS = [getattr(signal, name) for name in ("SIGTERM", "SIGINT") if hasattr(signal, name)]


@dataclass(slots=True)
class Progress:
    """What a worker has done, since it began and since it last told."""

    as_json: bool
    sessions: set[SessionKey] = field(default_factory=set)
    turns: Counter[str] = field(default_factory=Counter)
    told_sessions: set[SessionKey] = field(default_factory=set)
    told_turns: Counter[str] = field(default_factory=Counter)

    def hear(self, notice: Notice) -> None:
        """Count a turn that ended."""
        if isinstance(notice, RunEnded):
            self.sessions.add(notice.key)
            self.turns[notice.status] += 1

    def tell(self) -> None:
        """Print what was done since the last time, if anything was."""
        if not self.turns:
            return
        self._print("progress", self.sessions, self.turns)
        self.told_sessions |= self.sessions
        self.told_turns += self.turns
        self.sessions, self.turns = set(), Counter()

    def tell_all(self) -> None:
        """Print what is left to tell, and what was done in all."""
        self.tell()
        self._print("ended", self.told_sessions, self.told_turns)

    def say(self, event: str, text: str, **data: Any) -> None:
        """Print one line, for people or for scripts."""
        line = json.dumps({"event": event, **data}) if self.as_json else f"{datetime.now():%H:%M:%S} {text}"
        print(line, flush=True)

    def _print(self, event: str, sessions: set[SessionKey], turns: Counter[str]) -> None:
        counted = {str(status): turns[status] for status in RunStatus if status is not RunStatus.RUNNING}
        told = ", ".join(f"{count} {status}" for status, count in counted.items() if count) or "none"
        noun = "session" if len(sessions) == 1 else "sessions"
        begin = "in all: " if event == "ended" else ""
        self.say(event, f"{begin}{len(sessions)} {noun} advanced; turns: {told}", sessions=len(sessions), **counted)


def worker(
    store: Address,
    program: Annotated[
        list[str],
        typer.Option(
            "--program", help="What sessions run: module:name, a program, a graph, or a function of the store."
        ),
    ],
    concurrency: Annotated[int, typer.Option(min=1, help="How many sessions are worked on at once.")] = 8,
    poll: Annotated[float, typer.Option(min=0.01, help="Seconds between looks when there is nothing.")] = POLL_SECONDS,
    grace: Annotated[float, typer.Option(min=0, help="Seconds the turns under way have to end in.")] = 30.0,
    every: Annotated[float, typer.Option(min=0.05, help="Seconds between reports.")] = 5.0,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Do what is due in any session of the store: messages, commands, answers, timers, and runs that were lost.

    SIGTERM or Ctrl-C ends it once the turns under way have ended; a second one, or the end of the grace, ends it at
    once, and another worker takes its turns over. Ends with 0, with 1 if turns were left under way, and with 2 if it
    could not begin.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    places = {place: named(place) for place in program}

    async def run() -> int:
        progress = Progress(as_json)
        options = {"pool_size": connections_for(concurrency)} if store.startswith("postgres") else {}
        async with opening(store, schema, **options) as opened:
            programs = [await _program(place, found, opened) for place, found in places.items()]
            runtime = SessionRuntime(opened, programs, listeners=[progress.hear])
            names = runtime.programs.names
            progress.say("started", f"worker {os.getpid()} for {', '.join(names)}", pid=os.getpid(), programs=names)
            tune_gc_for_worker()
            async with runtime:
                left = await _work(runtime.worker(concurrency, poll=poll), progress, grace, every)
            if left:
                # Going on with the usual ending would stop the turns, and stopped turns are not taken over.
                progress.tell_all()
                os._exit(LEFT_UNDER_WAY)
        progress.tell_all()
        return 0

    try:
        raise typer.Exit(asyncio.run(run()))
    except TenutoError as error:
        typer.echo(f"Error: {error.message}", err=True)
        raise typer.Exit(2) from error


async def _work(work: Worker, progress: Progress, grace: float, every: float) -> bool:
    """Work until a signal comes, then until the turns under way have ended; tell whether some have not in time."""
    told_to_end = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        for each in _ENDS:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        work.finish()
        told_to_end.set()

    for each in _ENDS:
        _on_signal(loop, each, end)
    working = asyncio.create_task(work.work())
    reporting = asyncio.create_task(_report(progress, every))
    ending = asyncio.create_task(told_to_end.wait())
    try:
        await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            progress.say("ending", "ending: no more is taken in hand")
            await asyncio.wait((working,), timeout=grace)
        if working.done():
            working.result()
        return not working.done()
    finally:
        for task in (reporting, ending):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def _on_signal(loop: asyncio.AbstractEventLoop, number: signal.Signals, act: Callable[[], None]) -> None:
    """Have the loop do something when a signal comes, also on systems whose loops know no signals."""
    try:
        loop.add_signal_handler(number, act)
    except NotImplementedError:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(act))


async def _report(progress: Progress, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        progress.tell()


async def _program(place: str, found: Any, store: Store) -> Program:
    """Return the program at a place: what stands there, or what it makes for this store; a graph is one."""
    if not isinstance(found, Program | CompiledGraph) and callable(found):
        try:
            made = found(store)
            found = await made if inspect.isawaitable(made) else made
        except Exception as error:
            raise typer.BadParameter(f"{place!r} made no program: {error!r}.", param_hint="--program") from error
    if isinstance(found, CompiledGraph):
        return found.as_program()
    if not isinstance(found, Program):
        raise typer.BadParameter(
            f"{place!r} is not a program, nor a function of the store that makes one; is it decorated with @program?",
            param_hint="--program",
        )
    return found
