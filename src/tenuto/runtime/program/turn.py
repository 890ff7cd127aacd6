"""A turn as its program sees it: the session, and everything a program may do while it runs.

Changes are made in memory and written together: by `save`, at the end of each step, when the turn suspends, and when it
ends. After a suspension or a crash the program runs again from what was written; a call made through `effect` is not
repeated if its result is known.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from tenuto.argument import word_of
from tenuto.codec import JSON, dumps
from tenuto.model.effect import EffectKind
from tenuto.model.session import SessionKey
from tenuto.model.wait import WaitKind
from tenuto.runtime.calls import additions, steps, suspension
from tenuto.runtime.calls.additions import hand_off
from tenuto.runtime.calls.arguments import (
    check_callable,
    check_child,
    check_fields,
    check_frame,
    check_once,
    check_values,
    sized,
    usage_of,
)
from tenuto.runtime.calls.effect_call import call_effect
from tenuto.runtime.calls.suspension import ask, spawning
from tenuto.runtime.conversation.frame import FrameKind, frame_mark, seen_since
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.session_view import LogView, Session, trace_id_of
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.effect_journal import USED, Place
from tenuto.runtime.turn.invocation_waits import WaitFor
from tenuto.store.bounds import check_name, check_timeout


class Turn:
    """A running turn. Programs receive it as their only argument."""

    __slots__ = ("_context",)

    def __init__(self, context: TurnContext) -> None:
        self._context = context

    @property
    def key(self) -> SessionKey:
        """The session's full name."""
        return self._context.key

    @property
    def session_id(self) -> str:
        """The caller's id of the session."""
        return self._context.key.session_id

    @property
    def run_id(self) -> str:
        """The id of this turn's run."""
        return self._context.run_id

    @property
    def attempt(self) -> int:
        """The number of this run's runner: 1, or more after a takeover."""
        return self._context.attempt

    @property
    def input(self) -> JSON:
        """The message that began the turn, or the last one taken since; None if there was none."""
        return self._context.invocation.input

    @property
    def resumed(self) -> bool:
        """Whether an earlier run, or an earlier runner of this run, already made progress."""
        return self._context.resumed

    @property
    def definition(self) -> Definition:
        """The program's definition: prompt, model, tools, tasks."""
        definition = self._context.replica.definition
        assert definition is not None
        return definition

    @property
    def trace_id(self) -> str | None:
        """The trace that all turns of the session belong to."""
        return trace_id_of(self._context.replica.profile)

    @property
    def session(self) -> Session:
        """The current session, with the changes of this turn."""
        return self._context.replica.value()

    @property
    def messages(self) -> LogView:
        """The whole conversation."""
        return LogView(self._context.replica.messages)

    @property
    def seen(self) -> list[Any]:
        """The part of the conversation for the model: the frame's summary, its buffer, then the messages since."""
        replica = self._context.replica
        return seen_since(replica.messages, replica.frame_at)

    @property
    def step(self) -> int:
        """The current step, counted over all turns of the invocation, from 1."""
        return self._context.step

    @property
    def open_calls(self) -> list[Mapping[str, Any]]:
        """The tool calls of the conversation that have no result yet."""
        return self._context.open_calls

    def get(self, name: str, default: JSON = None) -> JSON:
        """Return a field of the session's document."""
        check_name(name, "a field's name")
        return self._context.replica.document.get(name, default)

    def set(self, **fields: JSON) -> None:
        """Set fields of the session's document."""
        context = self._context
        context.check_open()
        check_fields(fields, context.replica.logs, context.writer.store.budget)
        context.replica.document = context.replica.document | fields
        context.pending.document |= fields

    def update(self, name: str, change: Callable[[Any], JSON], default: JSON = None) -> JSON:
        """Change a field with a function of its value; concurrent tools lose no update this way."""
        check_name(name, "a field's name")
        check_callable(change, "change")
        value = change(self._context.replica.document.get(name, default))
        self.set(**{name: value})
        return value

    def append(self, *messages: JSON, once: str | None = None) -> list[Any]:
        """Add messages to the conversation and return them as they will be stored, with unique call ids.

        With `once`, a program that runs again does not add them again: the key is journaled with them.
        """
        return additions.append(self._context, *messages, once=once)

    def add(self, log: str, *items: JSON, once: str | None = None) -> None:
        """Add items to a log that is not the conversation."""
        additions.add(self._context, log, *items, once=once)

    async def save(self) -> None:
        """Write all changes so far in one commit."""
        await self._context.save()

    async def each_step(self) -> AsyncIterator[int]:
        """Yield the number of each step; after the body, write the step and take the input meant for it."""
        while True:
            yield await steps.begin_step(self._context)
            await steps.finish_step(self._context)

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
        """Make a call to the outside once, and return its result, or raise `EffectFailed`; a replay does the same.

        A tool's start is recorded before it is called and its result before this returns; a model's result is written
        with the next commit, and the model is called again if that was lost. The same key with a different request
        raises `EffectMismatch`. A call that was started by a runner that is gone is in doubt: it is repeated if it is a
        model's, idempotent, or the policy says so; otherwise the turn suspends until somebody settles it, or fails.
        `record` is called with result and error before they are written: what it adds is written in the same commit.
        Effects called inside a call get a separate `namespace`, unless one is passed.
        """
        context = self._context
        return await call_effect(
            context,
            Place(context.namespace if namespace is None else namespace, context.step, key),
            call,
            request,
            kind=kind,
            idempotent=idempotent,
            call_id=call_id,
            record=record,
        )

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

        When the program repeats the step, the first `wait` for a signal finds the first such wait of that step, the
        second the second. A wait that was not answered in time raises `WaitExpired`.
        """
        wanted = WaitFor(signal_id=signal_id, kind=kind, schema=schema, timeout=timeout, metadata=metadata or {})
        return suspension.wait_all(self._context, [wanted])[0]

    async def wait_all(self, wanted: Sequence[WaitFor], *, partial: bool = False) -> list[JSON]:
        """Return the answers to several waits; until all are settled, the turn suspends here."""
        return suspension.wait_all(self._context, wanted, partial=partial)

    async def sleep(self, seconds: float, name: str = "sleep") -> None:
        """Sleep without a process: the turn suspends and a worker wakes it."""
        suspension.sleep(self._context, seconds, name)

    def emit(self, chunk: JSON) -> None:
        """Emit a part of the reply in progress to the readers of the session's stream.

        Text, or the `text` of a mapping, is kept as a partial reply if the turn is interrupted before the message.
        """
        context = self._context
        context.check_open()
        size = len(sized(dumps({"chunk": chunk}, "turn"), "chunk", context.room))
        text = chunk.get("text") if isinstance(chunk, Mapping) else chunk
        if isinstance(text, str):
            context.said += text
        context.chunks.add(context.step, chunk, size)

    def use(self, model: str, source: str = "", *, once: str | None = None, **counted: int) -> None:
        """Count the tokens of a model call: `input`, `output`, `cache_read`, `cache_write`, `reasoning`.

        Inside the call of an effect the tokens count as often as the call is made; elsewhere, `once` keeps a program
        that runs again from counting twice.
        """
        context = self._context
        context.check_open()
        usage = usage_of(model, source, counted)
        check_once(once)
        if once is None or not additions.was_done(context, once, USED):
            context.pending.usage.append(usage)

    def frame(self, kind: FrameKind | str = FrameKind.COMPACTION, *, summary: str | None = None, keep: int = 0) -> None:
        """Begin a frame: from here on the program sees the summary, the last `keep` messages, and later ones."""
        context = self._context
        check_frame(summary, keep, context.writer.store.budget)
        mark = frame_mark(word_of(FrameKind, kind, "kind"), context.replica.messages, summary=summary, keep=keep)
        additions.append(context, mark)

    def hand_off(self, program: str, *, summary: str | None = None, keep: int = 0, message: JSON = None) -> None:
        """Let another program run the session from the next turn on, optionally beginning with a message.

        Frame, definition and message are one commit; the message is queued after it. Name a program that is only
        registered elsewhere with its version: `name@version`.
        """
        budget = self._context.writer.store.budget
        check_name(program, "program")
        check_frame(summary, keep, budget)
        check_values([message], "message", budget)
        hand_off(self._context, program, summary=summary, keep=keep, message=message)

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
        """Send a child session a message and return the outcome of its turn; this turn suspends until then.

        The child is started after this turn's commit. The answer has its `result` or its `error`, and its `session_id`:
        pass that to send the same child another message, with its history.
        """
        context = self._context
        check_child(program, message, name, call_id, context.writer.store.budget)
        if timeout is not None:
            check_timeout(timeout)
        wanted, sent = spawning(
            context, program, message, session_id=session_id, seconds=timeout, call_id=call_id, name=name
        )
        return ask(context, wanted, sent)


def context_of(turn: Turn) -> TurnContext:
    """Return a turn's context, for engines and tools that run within it."""
    return turn._context
