"""`tenuto worker`: run what is due in any session of a store until a signal ends it."""

import asyncio
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
from tenuto.cli.parameters import AsJson, Schema, load_runtime, on_store
from tenuto.model.run import RunStatus
from tenuto.model.session import SessionKey
from tenuto.runtime.queue.worker import POLL_SECONDS, Worker, connections_for, tune_gc_for_worker
from tenuto.runtime.stream.notices import Notice, RunEnded

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
    place: Annotated[str, typer.Argument(metavar="MODULE:RUNTIME", help="Import path of a SessionRuntime.")],
    store: Annotated[
        str | None, typer.Option("--store", help="Another store than the declared one.", show_default=False)
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="How many sessions to work on at once.")] = 8,
    poll: Annotated[float, typer.Option(min=0.01, help="Poll interval when idle, in seconds.")] = POLL_SECONDS,
    grace: Annotated[float, typer.Option(min=0, help="Grace period for running turns on shutdown, in seconds.")] = 30.0,
    every: Annotated[float, typer.Option(min=0.05, help="Interval between reports, in seconds.")] = 5.0,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Run a declared runtime: messages, commands, answers, timers and orphaned runs of any session in its store.

    Its hooks, listeners and actions run here too. SIGTERM or Ctrl-C ends the worker once its running turns have ended.
    A second signal, or the end of the grace period, ends it at once, and another worker takes over its turns. Exits
    with 0, with 1 if turns were still running, and with 2 if it could not start.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    declared, progress = load_runtime(place), Progress(as_json)

    async def run() -> int:
        opening = on_store(declared, store, schema, pool_size=connections_for(concurrency))
        async with declared.using(opening, listeners=[progress.count]) as runtime:
            tune_gc_for_worker()
            work = runtime.worker(concurrency, poll=poll)
            left = await _work(work, list(runtime.programs), progress, grace, every)
            if left:
                # Closing the runtime would stop these turns, and stopped turns are not taken over.
                progress.report_all()
                os._exit(ExitCode.REFUSED)
        progress.report_all()
        return ExitCode.DONE

    raise typer.Exit(run_or_exit(run(), as_json=as_json))


async def _work(work: Worker, programs: list[str], progress: Progress, grace: float, every: float) -> bool:
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
    serving = ", ".join(programs) or "no programs"
    progress.say("started", f"worker {os.getpid()} for {serving}", pid=os.getpid(), programs=programs)
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
