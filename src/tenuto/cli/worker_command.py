"""`tenuto worker`: run what is due in any session of a store until a signal ends it."""

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

from tenuto.cli.exit_code import ExitCode, run_or_exit
from tenuto.cli.parameters import Address, AsJson, Schema, load_object, open_existing
from tenuto.graph.compiled_graph import CompiledGraph
from tenuto.model.run import RunStatus
from tenuto.model.session import SessionKey
from tenuto.runtime.program.program import Program
from tenuto.runtime.queue.worker import POLL_SECONDS, Worker, connections_for, tune_gc_for_worker
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.stream.notices import Notice, RunEnded
from tenuto.store.store import Store

_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGINT") if hasattr(signal, name)]


@dataclass(slots=True)
class Progress:
    """What a worker has done, since it started and since its last report."""

    as_json: bool
    sessions: set[SessionKey] = field(default_factory=set)
    turns: Counter[str] = field(default_factory=Counter)
    reported_sessions: set[SessionKey] = field(default_factory=set)
    reported_turns: Counter[str] = field(default_factory=Counter)

    def count(self, notice: Notice) -> None:
        """Count a turn that ended."""
        if isinstance(notice, RunEnded):
            self.sessions.add(notice.key)
            self.turns[notice.status] += 1

    def report(self) -> None:
        """Print what was done since the last report, if anything was."""
        if not self.turns:
            return
        self._print("progress", self.sessions, self.turns)
        self.reported_sessions |= self.sessions
        self.reported_turns += self.turns
        self.sessions, self.turns = set(), Counter()

    def report_all(self) -> None:
        """Print what is not reported yet, and the totals."""
        self.report()
        self._print("ended", self.reported_sessions, self.reported_turns)

    def say(self, event: str, text: str, **data: Any) -> None:
        """Print one line, as text or as JSON."""
        line = json.dumps({"event": event, **data}) if self.as_json else f"{datetime.now():%H:%M:%S} {text}"
        print(line, flush=True)

    def _print(self, event: str, sessions: set[SessionKey], turns: Counter[str]) -> None:
        counted = {str(status): turns[status] for status in RunStatus if status is not RunStatus.RUNNING}
        text = ", ".join(f"{count} {status}" for status, count in counted.items() if count) or "none"
        noun = "session" if len(sessions) == 1 else "sessions"
        begin = "total: " if event == "ended" else ""
        self.say(event, f"{begin}{len(sessions)} {noun} advanced; turns: {text}", sessions=len(sessions), **counted)


def worker(
    store: Address,
    program: Annotated[
        list[str],
        typer.Option(
            "--program",
            help="Program to register: import path module:name of a program, a graph, or a function that takes the "
            "store and returns one.",
        ),
    ],
    concurrency: Annotated[int, typer.Option(min=1, help="How many sessions to work on at once.")] = 8,
    poll: Annotated[float, typer.Option(min=0.01, help="Poll interval when idle, in seconds.")] = POLL_SECONDS,
    grace: Annotated[float, typer.Option(min=0, help="Grace period for running turns on shutdown, in seconds.")] = 30.0,
    every: Annotated[float, typer.Option(min=0.05, help="Interval between reports, in seconds.")] = 5.0,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Run what is due in any session of the store: messages, commands, answers, timers and orphaned runs.

    SIGTERM or Ctrl-C ends the worker once its running turns have ended. A second signal, or the end of the grace
    period, ends it at once, and another worker takes over its turns. Exits with 0, with 1 if turns were still running,
    and with 2 if it could not start.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    places = {place: load_object(place) for place in program}

    async def run() -> int:
        progress = Progress(as_json)
        options = {"pool_size": connections_for(concurrency)} if store.startswith("postgres") else {}
        async with open_existing(store, schema, **options) as opened:
            programs = [await _program(place, found, opened) for place, found in places.items()]
            runtime = SessionRuntime(opened, programs, listeners=[progress.count])
            names = list(runtime.programs)
            progress.say("started", f"worker {os.getpid()} for {', '.join(names)}", pid=os.getpid(), programs=names)
            tune_gc_for_worker()
            async with runtime:
                left = await _work(runtime.worker(concurrency, poll=poll), progress, grace, every)
            if left:
                # Closing the runtime would stop these turns, and stopped turns are not taken over.
                progress.report_all()
                os._exit(ExitCode.REFUSED)
        progress.report_all()
        return ExitCode.DONE

    raise typer.Exit(run_or_exit(run()))


async def _work(work: Worker, progress: Progress, grace: float, every: float) -> bool:
    """Work until a signal comes, then until running turns have ended; return whether some did not end in time."""
    signalled = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        for each in _SIGNALS:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        work.finish()
        signalled.set()

    for each in _SIGNALS:
        _on_signal(loop, each, end)
    working = asyncio.create_task(work.work())
    reporting = asyncio.create_task(_report(progress, every))
    ending = asyncio.create_task(signalled.wait())
    try:
        await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            progress.say("ending", "shutting down: finishing running turns, taking no new work")
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
    """Call `act` in the loop when a signal comes, also where loops do not support signal handlers."""
    try:
        loop.add_signal_handler(number, act)
    except NotImplementedError:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(act))


async def _report(progress: Progress, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        progress.report()


async def _program(place: str, found: Any, store: Store) -> Program[Any]:
    """Return the program at an import path: the object itself, or what it returns for this store; a graph is one."""
    if not isinstance(found, Program | CompiledGraph) and callable(found):
        try:
            made = found(store)
            found = await made if inspect.isawaitable(made) else made
        except Exception as error:
            raise typer.BadParameter(
                f"{place!r} did not return a program: {error!r}.", param_hint="--program"
            ) from error
    if isinstance(found, CompiledGraph):
        return found.as_program()
    if not isinstance(found, Program):
        raise typer.BadParameter(
            f"{place!r} is not a program, and does not return one for a store; is it decorated with @program?",
            param_hint="--program",
        )
    return found
