"""Due input, taken one at a time under the session's lane."""

import logging
from collections.abc import Mapping

from tenuto.codec import JSON
from tenuto.errors import (
    ActionNotRegistered,
    ClaimLost,
    InvalidInput,
    StoredDataCorrupt,
    StoreError,
    TenutoError,
    WaitNotOpen,
)
from tenuto.model.checkpoint import Checkpoint
from tenuto.model.commit import Append
from tenuto.model.event import EventType, NewEvent
from tenuto.model.input import Consume, Input, InputKind
from tenuto.model.lane import Lane
from tenuto.model.session import SessionKey
from tenuto.runtime.change.action import Commands, DeleteSession, ForkSession, RewindSession, SendMessage
from tenuto.runtime.change.fork import NewFork, fork
from tenuto.runtime.change.pipeline import Pipeline
from tenuto.runtime.change.rewind import going_back
from tenuto.runtime.conversation.history import as_message
from tenuto.runtime.run.begin import TurnFactory
from tenuto.runtime.run.first_message import begins_turn, first_message_of, notice_message
from tenuto.runtime.run.refusal import NOT_HERE, refusal_in, refuse
from tenuto.runtime.session.action_protocol import Action
from tenuto.runtime.session.session_view import MESSAGES
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.replica import Replica
from tenuto.store.store import Store
from tenuto.writing.error_record import error_record
from tenuto.writing.lane_claim import free_lane, under

_log = logging.getLogger("tenuto.runtime")


class InputHandler:
    """Takes input: each is consumed by the commit that does what it requests."""

    def __init__(self, store: Store, factory: TurnFactory, pipeline: Pipeline, commands: Commands) -> None:
        self._store = store
        self._factory = factory
        self._pipeline = pipeline
        self._commands = commands
        self._left: set[str] = set()

    def is_for_others(self, queued: Input) -> bool:
        """Return whether an input is an action that only another process can read; it does not block later input."""
        if queued.kind is not InputKind.COMMAND or queued.unreadable is not None:
            return False
        try:
            self._commands.read(queued.body)
        except ActionNotRegistered as error:
            if error.action not in self._left:
                self._left.add(error.action)
                _log.warning("Input %s of %s is left to other workers: %s", queued.input_id, queued.key, error)
            return True
        except Exception:
            return False  # refused when it is taken
        return False

    async def handle(self, replica: Replica, lane: Lane, queued: Input) -> TurnContext | None:
        """Take one input: a message begins a turn, a command is executed, a wake with nothing to do is consumed.

        The turn that it began holds the lane; if there is none, the lane is freed. Input that no process can ever take
        is settled as refused. Any other error is raised, and the input stays queued.
        """
        try:
            if queued.unreadable is not None:
                raise StoredDataCorrupt(queued.unreadable, key=queued.key)
            turn = await self._taken(replica, lane, queued)
        except (ClaimLost, WaitNotOpen):
            turn = None  # raced with a cancel, or with an answer to a wait that was to be abandoned
        except Exception as error:
            refusal = error if queued.unreadable is not None else refusal_in(error)
            if refusal is None:
                raise
            await self.refuse(queued, refusal)
            turn = None
        if turn is None:
            await free_lane(self._store, lane)
        return turn

    async def refuse(self, queued: Input, error: Exception) -> None:
        """Settle an input as refused, and notify listeners."""
        if await refuse(self._store, queued, error) and begins_turn(queued):
            await self._factory.failures.verb(queued.key, SendMessage.__name__, error, streams=False)

    async def _taken(self, replica: Replica, lane: Lane, queued: Input) -> TurnContext | None:
        if begins_turn(queued):
            return await self._factory.begin(
                replica, lane, await first_message_of(self._store, queued, replica), warm=False
            )
        if queued.kind is InputKind.COMMAND:
            await self._command(replica, lane, queued)
        else:
            await self._woken(replica, lane, queued)
        return None

    async def _command(self, replica: Replica, lane: Lane, queued: Input) -> None:
        consume = (Consume(input_id=queued.input_id),)
        try:
            match self._commands.read(queued.body):
                case DeleteSession(cascade):
                    await self._pipeline.perform(
                        queued.key,
                        DeleteSession.__name__,
                        self._store.delete(queued.key, cascade=cascade),
                        streams=False,
                    )
                case ForkSession() as action:
                    await self._fork(lane, queued, action)
                case RewindSession(to):
                    back, name = await going_back(self._store, replica, to), RewindSession.__name__
                    await self._pipeline.execute(
                        replica, lane, back, name=name, consume=consume, input_id=queued.input_id
                    )
                case Action() as action:
                    await self._pipeline.execute(replica, lane, action, consume=consume, input_id=queued.input_id)
                case other:
                    raise InvalidInput(f"{type(other).__name__} cannot be executed from a queue.")
        except (ClaimLost, WaitNotOpen, StoreError, *NOT_HERE):
            raise  # the command is not at fault: it waits for the next runner
        except Exception as error:
            if isinstance(error, TenutoError) and error.retryable:
                raise
            await self._factory.failures.verb(queued.key, _name_of(queued), error, streams=False)
            await self._consumed(lane, queued, error_record(error))

    async def _fork(self, lane: Lane, queued: Input, action: ForkSession) -> None:
        """Fork the session under the input's id, so that a runner that does it again finds the same fork."""
        key = queued.key
        target = None if action.session_id is None else SessionKey(action.session_id, tenant=key.tenant)
        said = None if action.message is None else as_message(action.message)
        new = NewFork(source=key, at=action.at, target=target, message=said, key=action.key or queued.input_id)

        def admit(source: Replica, point: Checkpoint | None) -> None:
            self._factory.admit(said, source, point)

        forking = fork(self._store, new, new.begins(), self._factory.load, admit)
        await self._pipeline.perform(key, ForkSession.__name__, forking, streams=False)
        await self._consumed(lane, queued)

    async def _woken(self, replica: Replica, lane: Lane, queued: Input) -> None:
        message = notice_message(queued, self._factory.traits_of(replica.definition))
        if message is None:
            await self._consumed(lane, queued)
            return
        await self._store.commit(
            under(
                lane,
                expected_version=replica.version,
                save=True,
                logs={MESSAGES: Append(items=(message,))},
                consume=(Consume(input_id=queued.input_id, log=MESSAGES, item=0),),
            )
        )

    async def _consumed(self, lane: Lane, queued: Input, error: JSON = None) -> None:
        """Consume an input that changes nothing, with an event for its failure if it failed."""
        failed = NewEvent(type=EventType.SESSION_ACTION_FAILED, data={"input_id": queued.input_id, "error": error})
        consume = (Consume(input_id=queued.input_id),)
        await self._store.commit(under(lane, consume=consume, events=() if error is None else (failed,)))


def _name_of(queued: Input) -> str:
    """Return the name of a queued action."""
    return str(queued.body.get("action")) if isinstance(queued.body, Mapping) else "command"
