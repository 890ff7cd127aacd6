"""A turn as its program sees it: the session, and everything a program may do while it runs.

Changes are made in memory and written together: by `save`, at the end of each step, when the turn suspends, and when it
ends. After a suspension or a crash the program runs again from what was written; a call made through `effect` is not
repeated if its result is known.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel
from typing_extensions import TypeVar as TypeVarWithDefault

from tenuto.argument import check_map, check_word
from tenuto.codec import dumps
from tenuto.messages.message import (
    ContextMessage,
    Delta,
    Message,
    Sendable,
    SystemMessage,
    ToolCall,
    UserMessage,
    text_of,
)
from tenuto.runtime.calls import additions, steps
from tenuto.runtime.calls.additions import hand_off
from tenuto.runtime.calls.arguments import check_callable, check_frame, check_once, check_values, sized, usage_of
from tenuto.runtime.calls.effect_call import call_effect
from tenuto.runtime.calls.failure import Raises
from tenuto.runtime.calls.model_call import call_model
from tenuto.runtime.calls.outgoing_input import enqueue, schedule
from tenuto.runtime.calls.result_form import Returns, form_of
from tenuto.runtime.calls.retry import Backoff, Retry, RetryOn
from tenuto.runtime.conversation.frame import frame_mark, seen_since
from tenuto.runtime.conversation.scheduled_message import new_schedule
from tenuto.runtime.program.program_name import Named, full_name
from tenuto.runtime.program.turn_state import Document, typed_state
from tenuto.runtime.program.turn_waits import TurnWaits
from tenuto.runtime.session.action_protocol import Action, Verb
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.session_view import LogView, trace_id_of
from tenuto.runtime.stream.moments import TokensCounted
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.effect_journal import USED, Place
from tenuto.store.bounds import check_name
from tenuto.words import JSON, EffectKind, FrameKind, MissedOccurrences, Seconds, WhenWaiting

T = TypeVar("T")
StateT = TypeVarWithDefault("StateT", bound=BaseModel | Document, default=Document)


class Turn(TurnWaits, Generic[StateT]):
    """A running turn. Programs receive it as their only argument."""

    __slots__ = ("_context",)

    def __init__(self, context: TurnContext) -> None:
        self._context = context

    @property
    def session_id(self) -> str:
        """The caller's id of the session."""
        return self._context.key.session_id

    @property
    def tenant(self) -> str:
        """The tenant that the session belongs to."""
        return self._context.key.tenant

    @property
    def user_id(self) -> str | None:
        """The user that the session belongs to."""
        return self._context.replica.profile.user_id

    @property
    def run_id(self) -> str:
        """The id of this turn's run."""
        return self._context.run_id

    @property
    def origin_id(self) -> str:
        """The id of the first invocation of this one's chain of resumes: the same however often the turn is resumed."""
        return self._context.invocation.origin_id

    @property
    def attempt(self) -> int:
        """The number of this run's runner: 1, or more after a takeover."""
        return self._context.attempt

    @property
    def resumed(self) -> bool:
        """Whether an earlier run, or an earlier runner of this run, already made progress."""
        return self._context.resumed

    @property
    def step(self) -> int:
        """The current step, counted over all turns of the invocation, from 1."""
        return self._context.step

    @property
    def trace_id(self) -> str | None:
        """The trace that all turns of the session belong to."""
        return trace_id_of(self._context.replica.profile)

    @property
    def definition(self) -> Definition:
        """The program's definition: prompt, model, tools, tasks."""
        definition = self._context.replica.definition
        assert definition is not None
        return definition

    @property
    def input(self) -> UserMessage | SystemMessage | None:
        """The message that began the turn, or the last one taken since; None if there was none."""
        return cast("UserMessage | SystemMessage | None", self._context.invocation.input)

    @property
    def text(self) -> str:
        """The text of the input; empty if there is none."""
        return text_of(self.input)

    @property
    def messages(self) -> Sequence[Message]:
        """The whole conversation."""
        return LogView(self._context.replica.messages)

    @property
    def context(self) -> list[ContextMessage]:
        """The part of the conversation for the model: the frame's summary, its buffer, then the messages since."""
        replica = self._context.replica
        return seen_since(replica.messages, replica.frame_at)

    @property
    def open_calls(self) -> Sequence[ToolCall]:
        """The tool calls of the conversation that have no result yet; a step that runs again continues from them."""
        calls = self._context.open_calls
        if calls:
            additions.pass_calls(self._context, calls)
        return cast("list[ToolCall]", calls)

    @property
    def state(self) -> StateT:
        """The session's state: an instance of the program's model, or else the fields of the document.

        A field that is set is written with the next commit. Values of a model's fields cannot be changed in place.
        """
        typed = typed_state(self._context)
        return cast("StateT", Document(self._context) if typed is None else typed.view)

    def update(self, change: Callable[[StateT], Mapping[str, Any]]) -> None:
        """Set the fields that a function of the newest state returns; concurrent tools lose no update this way."""
        check_callable(change, "change")
        if (typed := typed_state(self._context)) is not None:
            typed.update(change)
        else:
            state = Document(self._context)
            state.update(check_map(change(cast("StateT", state)), "what an update returns"))

    def append(self, *messages: str | Message, once: str | None = None) -> list[Message]:
        """Add messages to the conversation and return them as they will be stored, with unique call ids.

        A text is a message of the assistant. A program that runs a step again does not add anything twice: its n-th
        message of the step is the n-th stored, and a different one raises `ReplayMismatch`. `once` names an addition
        whose place among the others may change.
        """
        said = ({"role": "assistant", "content": each} if isinstance(each, str) else each for each in messages)
        return additions.say(self._context, *said, once=once)

    def add(self, log: str, *items: JSON, once: str | None = None) -> None:
        """Add items to a log that is not the conversation; as in `append`, a step that runs again adds none twice."""
        additions.add(self._context, log, *items, once=once)

    def log(self, name: str) -> Sequence[JSON]:
        """Return the entries of a log."""
        check_name(name, "a log's name")
        return LogView(self._context.replica.logs.get(name, []))

    async def save(self) -> None:
        """Write all changes so far in one commit."""
        await self._context.save()

    async def steps(self) -> AsyncIterator[int]:
        """Yield the number of each step; after the body, write the step and take the input meant for it."""
        while True:
            yield await steps.begin_step(self._context)
            await steps.finish_step(self._context)

    async def model(
        self,
        call: Callable[[], Awaitable[T]],
        *,
        key: str | None = None,
        request: JSON = None,
        returns: Returns[T] | None = None,
        retries: int = 2,
        backoff: Backoff = 0.5,
        timeout: Seconds | None = None,  # noqa: ASYNC109 - of each making of the call
        retry_on: RetryOn | None = None,
    ) -> T:
        """Call a model once, and return what it said; a replay returns the same.

        See `effect`. Without `key`, the calls of a step are `model`, `model:2` and so on, in the order in which they
        begin; calls that run concurrently need a key each. Without `request`, the messages that the model sees are
        recorded by a digest. A transient failure is repeated, twice by default.
        """
        context = self._context
        result = await call_model(
            context,
            lambda key: Place(context.namespace, context.step, key),
            call,
            key=key,
            request=request,
            retry=Retry(retries, backoff, timeout, retry_on),
            form=form_of(returns),
        )
        return cast("T", result)

    async def effect(
        self,
        key: str,
        call: Callable[[], Awaitable[T]],
        request: JSON = None,
        *,
        kind: EffectKind = "tool",
        idempotent: bool = False,
        returns: Returns[T] | None = None,
        raises: Raises = (),
        retries: int = 0,
        backoff: Backoff = 0.5,
        timeout: Seconds | None = None,  # noqa: ASYNC109 - of each making of the call
        retry_on: RetryOn | None = None,
    ) -> T:
        """Make a call to the outside once, and return its result, or raise its failure; a replay does the same.

        A tool's start is recorded before it is called and its result before this returns; a model's result is written
        with the next commit, and the model is called again if that was lost. A different request under the key raises
        `EffectMismatch`, a second call of it in the step `KeyRepeated`. A call that was started by a runner
        that is gone is in doubt: it is repeated if it is a model's, idempotent, or the policy says so; otherwise the
        turn suspends until somebody settles it, or fails. Effects called inside a call have a separate namespace.

        The result must be JSON, or of the type `returns`, as which it is read back. After a failure the call is made
        again up to `retries` times: after one that is transient, or, for any call that is not a model's or idempotent,
        after one that `retry_on` names. If such a call takes longer than `timeout`, it is in doubt, and its failure is
        `EffectFailed`, unless it `raises` that type. A model's or idempotent call raises its own exceptions.
        """
        context = self._context
        result = await call_effect(
            context,
            Place(context.namespace, context.step, key),
            call,
            request,
            kind=kind,
            idempotent=idempotent,
            call_id=None,
            record=None,
            retry=Retry(retries, backoff, timeout, retry_on),
            form=form_of(returns),
            raises=raises,
        )
        return cast("T", result)

    def enqueue(
        self,
        message: Sendable | Action | Verb,
        *,
        session: str | None = None,
        due_at: datetime | None = None,
        delay: Seconds | None = None,
        key: str | None = None,
        even_if_failed: bool = False,
    ) -> str:
        """Queue a message or an action for this session or another one of the tenant, with the next commit.

        A turn that fails takes it back, unless `even_if_failed`. A program that runs again does not queue it again: it
        is found by its key, or by its number among those of the step. The target takes equal input under one `key`
        once. Returns the input's id: `Sessions.outcome` says what happened to it. If the target is unknown, deleted or
        closed when it is delivered, or has other input under the key, it is refused, and the event `outgoing_refused`
        in this session's stream says so.
        """
        return enqueue(
            self._context, message, session=session, due_at=due_at, delay=delay, key=key, even_if_failed=even_if_failed
        )

    def schedule(
        self,
        name: str,
        message: Sendable,
        *,
        every: Seconds | None = None,
        cron: str | None = None,
        tz: str = "UTC",
        missed: MissedOccurrences = "latest",
        when_waiting: WhenWaiting = "hold",
    ) -> None:
        """Declare a schedule of this session with the next commit, as `Session.schedule`; a worker puts it in force.

        A turn that fails takes it back. One that cannot be declared then is refused, as for `enqueue`.
        """
        given = new_schedule(name, message, every=every, cron=cron, tz=tz, missed=missed, when_waiting=when_waiting)
        schedule(self._context, name, given)

    def unschedule(self, name: str) -> None:
        """Remove a schedule of this session with the next commit; a turn that fails takes it back."""
        schedule(self._context, name, None)

    def emit(self, chunk: str | Delta) -> None:
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

    def record_usage(self, model: str, *, source: str = "", once: str | None = None, **counted: int) -> None:
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
            if context.inline is not None:
                place = context.call_under_way()
                context.inline.mark(TokensCounted(ids=context.ids, usage=usage, place=place))

    def frame(self, *, summary: str | None = None, keep: int = 0, kind: FrameKind = "compaction") -> None:
        """Begin a frame: from here on the program sees the summary, the last `keep` messages, and later ones."""
        context = self._context
        check_frame(summary, keep, context.writer.store.budget)
        word = check_word(kind, FrameKind, "kind")
        additions.begin_frame(context, frame_mark(word, context.replica.messages, summary=summary, keep=keep))

    def hand_off(
        self, program: str | Named, *, summary: str | None = None, keep: int = 0, message: Sendable | None = None
    ) -> None:
        """Let another program run the session from the next turn on, optionally beginning with a message.

        Frame, definition and message are one commit; the message goes before what is queued. Name a program that is
        only registered elsewhere with its version: `name@version`.
        """
        budget, called = self._context.writer.store.budget, full_name(program)
        check_name(called, "program")
        check_frame(summary, keep, budget)
        check_values([message], "message", budget)
        hand_off(self._context, called, summary=summary, keep=keep, message=message)


def context_of(turn: Turn[Any]) -> TurnContext:
    """Return a turn's context, for engines and tools that run within it."""
    return turn._context
