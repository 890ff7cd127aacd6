"""A turn as its program sees it: the session, and everything a program may do while it runs.

Changes are made in memory and written together: by `save`, at the end of each step, when the turn suspends, and when it
ends. After a suspension or a crash the program runs again, on what was written; what it calls through `effect` is not
called again if its outcome is known.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from tenuto.argument import MAPPING, word_of
from tenuto.codec import JSON, dumps
from tenuto.errors import InvalidInput, StepBudgetExceeded, StoreError
from tenuto.model.commit import EndRun, OpenWait, Receipt, SettleWait
from tenuto.model.effect import EffectKind
from tenuto.model.input import Boundary
from tenuto.model.run import Stop, StopKind
from tenuto.model.session import SessionKey
from tenuto.model.wait import WaitKind, WaitStatus
from tenuto.runtime.cache.replica import Replica
from tenuto.runtime.calls.arguments import (
    check_callable,
    check_child,
    check_fields,
    check_frame,
    check_log,
    check_once,
    check_sleep,
    check_values,
    check_waits,
    sized,
    usage_of,
)
from tenuto.runtime.calls.child import ask, spawning
from tenuto.runtime.calls.effect_call import call_effect, call_under_way, namespace_here, shorten_result
from tenuto.runtime.calls.handoff import hand_off
from tenuto.runtime.calls.steer import take_in
from tenuto.runtime.conversation.frame import FrameKind, frame_mark, seen_since
from tenuto.runtime.conversation.history import calls_of, check_message, with_unique_calls
from tenuto.runtime.program.program import Programs
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.session_view import MESSAGES, LogView, Session, trace_id_of
from tenuto.runtime.session.traits import ProgramTraits
from tenuto.runtime.stream.chunks import Chunks
from tenuto.runtime.turn.effect_journal import ONCE, USED, EffectJournal, InDoubt, Place
from tenuto.runtime.turn.invocation import Invocation, TurnStopped, TurnSuspended
from tenuto.runtime.turn.invocation_waits import InvocationWaits, WaitFor, answer_of
from tenuto.runtime.turn.pending import Pending
from tenuto.runtime.turn.turn_commit import TurnCommits
from tenuto.store.bounds import check_name, check_timeout
from tenuto.writing.run_writer import RunWriter

if TYPE_CHECKING:
    from tenuto.runtime.run.next_turn import NextTurn

DEFAULT_STEPS = 50
"""How many steps a turn may take."""


@dataclass(slots=True)
class Turn:
    """One turn under way. Programs get it as their only argument.

    A step that made tool calls is over with the commit that answers the last of them (`step_over`), though its body
    goes on: whoever goes on with the run begins with the next one. A turn that never began a step stays in its first.
    `foresee` says which turn is `following` on it, if one is; that one is its `follower` once it has begun.
    """

    copy: Replica
    writer: RunWriter
    invocation: Invocation
    journal: EffectJournal
    pending: Pending
    declared: ProgramTraits = field(default_factory=ProgramTraits)
    in_doubt: InDoubt = InDoubt.ASK
    budget: int = DEFAULT_STEPS
    programs: Programs = field(default_factory=Programs)
    chunks: Chunks = field(init=False)
    commits: TurnCommits = field(init=False)
    waits: InvocationWaits = field(init=False)
    ends_guarded: bool = False
    stop: Stop | None = None
    closed: bool = False
    steps: int = 0
    in_step: bool = False
    step_over: bool = False
    said: str = ""
    cut: bool = False
    store_failure: StoreError | None = None
    tools_under_way: int = 0
    called: dict[Place, object] = field(default_factory=dict)
    first_entry: dict[str, int] = field(default_factory=dict)
    engine: Any = None
    foresee: "Callable[[], NextTurn | None] | None" = None
    following: "NextTurn | None" = None
    follower: "Turn | None" = None
    _task: "asyncio.Task[Any] | None" = None

    def __post_init__(self) -> None:
        self.chunks = Chunks(self.writer, self.copy.told)
        self.waits = InvocationWaits(self.invocation.waits)
        self.first_entry = {name: len(items) for name, items in self.copy.logs.items()}
        self.commits = self.writer.rider = TurnCommits(self)

    @property
    def key(self) -> SessionKey:
        """The session's full name."""
        return self.copy.key

    @property
    def session_id(self) -> str:
        """The caller's id of the session."""
        return self.copy.key.session_id

    @property
    def run_id(self) -> str:
        """The run this turn is."""
        return self.writer.run_id

    @property
    def attempt(self) -> int:
        """Which runner of this run this is: 1, or more after a takeover."""
        return self.writer.attempt

    @property
    def input(self) -> JSON:
        """The message that began the turn, or the last one that came in since; None where none did."""
        return self.invocation.input

    @property
    def resumed(self) -> bool:
        """Whether an earlier run, or an earlier runner of this one, got somewhere already."""
        return self.invocation.resumes is not None or self.attempt > 1

    @property
    def definition(self) -> Definition:
        """What the program is told about itself: prompt, model, tools, tasks."""
        definition = self.copy.definition
        assert definition is not None
        return definition

    @property
    def trace_id(self) -> str | None:
        """The trace all turns of the session belong to."""
        return trace_id_of(self.copy.profile)

    @property
    def session(self) -> Session:
        """The session as it is now, with what this turn has done to it."""
        return self.copy.value()

    @property
    def messages(self) -> LogView:
        """The whole conversation."""
        return LogView(self.copy.messages)

    @property
    def seen(self) -> list[Any]:
        """What the program is to go by: the frame's summary, its buffer, then the messages since."""
        return seen_since(self.copy.messages, self.copy.frame_at)

    @property
    def step(self) -> int:
        """The step under way, counted over all turns of the invocation, from 1."""
        return self.invocation.steps_before + self.steps + 1

    @property
    def open_calls(self) -> list[Mapping[str, Any]]:
        """The tool calls of the conversation that have no result yet."""
        waiting = self.pending.open_calls()
        if not waiting:
            return []
        return [call for message in self.copy.messages for call in calls_of(message) if call["id"] in waiting]

    def get(self, name: str, default: JSON = None) -> JSON:
        """Return a field of the session's document."""
        check_name(name, "a field's name")
        return self.copy.document.get(name, default)

    def set(self, **fields: JSON) -> None:
        """Set fields of the session's document."""
        self.check_open()
        check_fields(fields, self.copy.logs, self.writer.store.budget)
        self.copy.document = self.copy.document | fields
        self.pending.document |= fields

    def update(self, name: str, change: Callable[[Any], JSON], default: JSON = None) -> JSON:
        """Change a field by a function of its value; tools that run side by side lose nothing this way."""
        check_name(name, "a field's name")
        check_callable(change, "change")
        value = change(self.copy.document.get(name, default))
        self.set(**{name: value})
        return value

    def append(self, *messages: JSON, once: str | None = None) -> list[Any]:
        """Add messages to the conversation and return them as they will be stored, call ids made unique.

        With `once`, a program that runs again does not add them again: the key is journaled with them.
        """
        self.check_open()
        check_once(once)
        used, made = self.copy.history.used, set[str]()
        if any(isinstance(each, MAPPING) and each.get("tool_calls") for each in messages):
            made = self.pending.calls()
        added, budget = [], self.writer.store.budget
        for message in messages:
            if not isinstance(message, MAPPING):
                if self.declared.is_conversation:
                    check_message(message)
                check_values([message], "message", budget)
                added.append(message)
                continue
            unique = with_unique_calls(message, used, made)
            check_values([unique], "message", budget)
            added.append(unique)
            made |= {call["id"] for call in calls_of(unique)}
        if once is not None and self._was_done(once):
            return []
        if any(isinstance(each, MAPPING) and each.get("role") == "assistant" for each in added):
            self.said = ""
        self.pending.add(MESSAGES, added)
        return added

    def add(self, log: str, *items: JSON, once: str | None = None) -> None:
        """Add items to a log that is not the conversation."""
        self.check_open()
        check_log(log, self.copy.document, MESSAGES)
        check_once(once)
        check_values(items, log, self.writer.store.budget)
        if once is not None and self._was_done(once):
            return
        self.pending.add(log, items)

    def _was_done(self, once: str, namespace: str = ONCE) -> bool:
        place = Place(namespace, self.step, once)
        if self.journal.find(place) is not None:
            return True
        self.pending.effects.append(self.journal.start(place, EffectKind.OTHER, None, idempotent=True, call_id=None))
        self.pending.effects.append(self.journal.finish(place))
        return False

    def discard(self) -> None:
        """Take back what is not written, as if it had not been done; what came of calls to the outside stays."""
        self.pending.effects = self.journal.undo(self.pending.effects)
        self.pending.discard()

    def shorten_result(self) -> bool:
        """Let the largest result that is not written be its call's error instead; tell whether there was one."""
        return shorten_result(self)

    async def save(self) -> None:
        """Write everything done so far, in one commit."""
        async with self.writer.writing:
            self.check_open()
            if not self.pending.is_empty:
                await self.commits.write(None, ())

    async def each_step(self) -> AsyncIterator[int]:
        """Yield the number of each step; when the body is done the step is written, and input meant for it comes in."""
        while True:
            yield await self.begin_step()
            await self.finish_step()

    async def begin_step(self) -> int:
        """Begin a step, if the turn's budget has one left, and return its number."""
        self.check_stop()
        if self.steps == 0 and self.invocation.resumes is not None and self._is_answered():
            self.count_step()
        if self.steps >= self.budget:
            raise StepBudgetExceeded(
                f"This turn of {self.key} took all of its {self.budget} steps; the next message has a new budget.",
                limit=self.budget,
            )
        self.in_step, self.step_over = True, False
        return self.step

    def _is_answered(self) -> bool:
        """Tell whether this step's calls were answered by whoever ended a run that had lost its runner.

        That one runs nothing of the program, and cannot know that it loops.
        """
        called = self.journal.called(self.step) or self.waits.called(self.step)
        return called and not self.open_calls

    async def finish_step(self) -> bool:
        """Write a finished step and take in what was sent for after it; return whether something was."""
        self.check_open()
        self.count_step()
        self.commits.is_boundary = True
        await self.commit()
        return bool(await self.steer(Boundary.AFTER_STEP))

    def count_step(self) -> None:
        """Be done with the step under way; the next commit says so."""
        self.steps += 1
        self.in_step = self.step_over = False
        self.pending.steps = self.steps

    @property
    def loops(self) -> bool:
        """Whether the program is in a step of its loop; an engine of its own counts by itself."""
        return self.in_step and not self.declared.resumes

    async def steer(self, boundary: Boundary) -> list[Any]:
        """Take in the input that was sent for this boundary of the run, and return it."""
        if self.copy.undisturbed and (boundary is Boundary.AFTER_STEP or self.ends_guarded):
            return []  # as of the last commit; the one that ends the turn makes sure
        return await take_in(self, boundary)

    async def effect(
        self,
        key: str,
        call: Callable[[], Awaitable[JSON]],
        request: JSON = None,
        *,
        kind: EffectKind | str = EffectKind.TOOL,
        idempotent: bool = False,
        call_id: str | None = None,
        namespace: str | None = None,
        record: Callable[[JSON, JSON], None] | None = None,
    ) -> JSON:
        """Make a call to the outside once, and return its result, or raise `EffectFailed`; replay gives the same.

        A tool's start is on record before it is called and its result before this returns; a model's rides with the
        next commit, and is asked for again if that never came. The same key with another request is `EffectMismatch`.
        A call that was begun by a runner that is gone is in doubt: it is made again if it is a model's, idempotent, or
        the policy says so; else the turn suspends until somebody says what became of it, or fails. `record` is called
        with result and error before they are written: what it adds goes into the same commit. What a call calls in turn
        has a `namespace` of its own, unless one is given.
        """
        return await call_effect(
            self,
            Place(namespace_here(self) if namespace is None else namespace, self.step, key),
            call,
            request,
            kind=kind,
            idempotent=idempotent,
            call_id=call_id,
            record=record,
        )

    def start_call(self, call_id: str, request: JSON, *, idempotent: bool) -> None:
        """Put a tool call on record as begun with the next commit, beside the message that makes it."""
        place = Place("", self.step, call_id)
        if self.journal.find(place) is None:
            started = self.journal.start(place, EffectKind.TOOL, request, idempotent=idempotent, call_id=call_id)
            self.pending.effects.append(started)

    async def wait(
        self,
        signal_id: str,
        *,
        kind: str = WaitKind.SIGNAL,
        schema: JSON = None,
        timeout: float | None = None,  # noqa: ASYNC109 - of the wait, not of this call
        metadata: Mapping[str, JSON] | None = None,
    ) -> JSON:
        """Return the answer to a wait; until there is one, the turn suspends here, and nothing waits in memory.

        When the program runs the step again, the first `wait` for a signal finds the first such wait of that step, the
        second the second. One that was not answered in time is `WaitExpired`.
        """
        (answer,) = await self.wait_all(
            [WaitFor(signal_id=signal_id, kind=kind, schema=schema, timeout=timeout, metadata=metadata or {})]
        )
        return answer

    async def wait_all(self, wanted: Sequence[WaitFor], *, partial: bool = False) -> list[JSON]:
        """Return the answers to several waits; until all are settled, the turn suspends here."""
        self.check_open()
        step, waits = self.step, check_waits(wanted, self.writer.store.budget)
        found = [self.waits.next(each, step) for each in waits]
        missing = [each.opening(step) for each, wait in zip(waits, found, strict=True) if wait is None]
        if missing or any(wait is not None and wait.status is WaitStatus.OPEN for wait in found):
            self.suspend(missing, partial=partial)
        return [answer_of(wait) for wait in found if wait is not None]

    def suspend(self, waits: Sequence[OpenWait], *, partial: bool = False) -> NoReturn:
        """End the turn here as suspended, with these waits open; another turn goes on once they are settled."""
        if (call := call_under_way(self)) is not None:
            raise InvalidInput(f"The effect {call} cannot wait for anything: wait before it is called, or after.")
        raise TurnSuspended(waits, partial=partial)

    async def open_waits(self, waits: Sequence[OpenWait]) -> None:
        """Open waits now, in one commit with what is pending, while the turn goes on."""
        self.check_open()
        receipt = await self.commit(waits=tuple(waits))
        for wait_id, opened in zip(receipt.wait_ids, waits, strict=True):
            self.waits.opened(wait_id, opened, self.key, self.run_id, receipt)

    async def sleep(self, seconds: float, name: str = "sleep") -> None:
        """Sleep without a process: the turn suspends and a worker wakes it."""
        check_sleep(seconds, name)
        if seconds == 0:
            return
        wanted = WaitFor(signal_id=name, kind=WaitKind.TIME, timeout=seconds)
        wait = self.waits.next(wanted, self.step)
        if wait is None or wait.status is WaitStatus.OPEN:
            self.suspend([] if wait else [wanted.opening(self.step)])

    def emit(self, chunk: JSON) -> None:
        """Show a part of the reply under way to whoever follows the session's stream.

        Text, or the `text` of a mapping, also counts as said, should the turn be interrupted before the message.
        """
        self.check_open()
        size = len(sized(dumps({"chunk": chunk}, "turn"), "chunk", self.writer.store.budget.max_bytes // 4))
        text = chunk.get("text") if isinstance(chunk, Mapping) else chunk
        if isinstance(text, str):
            self.said += text
        self.chunks.add(self.step, chunk, size)

    def discard_chunks(self) -> None:
        """Mark what was emitted since the last finished step as taken back, before it is said again."""
        self.chunks.take_back()
        self.said = ""

    def use(self, model: str, source: str = "", *, once: str | None = None, **counted: int) -> None:
        """Count the tokens of a model call: `input`, `output`, `cache_read`, `cache_write`, `reasoning`.

        Within the call of an effect it counts as often as the call is made; elsewhere `once` keeps a program that runs
        again from counting again.
        """
        self.check_open()
        usage = usage_of(model, source, counted)
        check_once(once)
        if once is None or not self._was_done(once, USED):
            self.pending.usage.append(usage)

    def frame(self, kind: FrameKind | str = FrameKind.COMPACTION, *, summary: str | None = None, keep: int = 0) -> None:
        """Begin a frame: from here on the program sees the summary, the last `keep` messages, and what follows."""
        check_frame(summary, keep, self.writer.store.budget)
        self.append(frame_mark(word_of(FrameKind, kind, "kind"), self.copy.messages, summary=summary, keep=keep))

    def hand_off(self, program: str, *, summary: str | None = None, keep: int = 0, message: JSON = None) -> None:
        """Let another program go on with the session from the next turn, and perhaps tell it something to begin with.

        Frame, definition and message are one commit; the message is queued once that stands. A program that is only
        registered elsewhere is named with its version: `name@version`.
        """
        check_name(program, "program")
        check_frame(summary, keep, self.writer.store.budget)
        check_values([message], "message", self.writer.store.budget)
        hand_off(self, program, summary=summary, keep=keep, message=message)

    async def child(
        self,
        program: str,
        message: JSON,
        *,
        session_id: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - of the wait, not of this call
        call_id: str | None = None,
        name: str = "child",
    ) -> JSON:
        """Ask another session and return how its turn went; this turn suspends until it has.

        The child is begun once this is committed. The answer has its `result` or its `error`, and its `session_id`: an
        earlier child that is named by it is consulted again, with its history.
        """
        check_child(program, message, name, call_id, self.writer.store.budget)
        if timeout is not None:
            check_timeout(timeout)
        wanted, sent = spawning(
            self, program, message, session_id=session_id, seconds=timeout, call_id=call_id, name=name
        )
        return await ask(self, wanted, sent)

    async def commit(
        self,
        *,
        end: EndRun | None = None,
        waits: tuple[OpenWait, ...] = (),
        settled: Iterable[SettleWait] = (),
    ) -> Receipt:
        """Write what is pending, in one commit; a reply that was lost is asked for again under the same operation."""
        self.pending.settled.extend(settled)
        async with self.writer.writing:
            self.check_open()
            return await self.commits.write(end, waits)

    def ask_to_stop(self, stop: Stop) -> None:
        """Tell the program of a stop: at once, or, if a tool is at work and need not be aborted, when that is done."""
        self.stop = stop
        soft = stop.kind is StopKind.INTERRUPT and self.tools_under_way
        if self._task is not None and not soft and not self.closed and not self.cut:
            self.cut = True
            self._task.cancel()

    def runs_in(self, task: "asyncio.Task[Any] | None") -> None:
        """Say which task the program runs in, as long as it can be stopped."""
        self._task = task
        self.writer.runs_in(task)

    def close(self) -> None:
        """Be over: nothing can be done in this turn any more, and all it held is let go of at once."""
        self.closed = True
        self.writer.release()
        self.writer.rider = None
        self.commits.let_go()
        self.foresee = self.following = None

    def note_store(self, error: BaseException) -> None:
        """Note that the turn's own store failed it for now; the same error from elsewhere is the program's."""
        if isinstance(error, StoreError) and error.retryable:
            self.store_failure = error

    def check_stop(self) -> None:
        """Leave the program if its run was asked to stop."""
        if self.stop is not None:
            raise TurnStopped

    def check_open(self) -> None:
        """Refuse to do anything in a turn that is over."""
        if self.closed:
            raise InvalidInput(f"This turn of {self.key} is over; nothing can be done in it any more.")
