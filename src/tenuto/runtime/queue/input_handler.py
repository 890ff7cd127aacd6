"""Input that is due, taken one at a time under the session's lane."""

import logging

from tenuto.codec import JSON
from tenuto.errors import ActionNotRegistered, ClaimLost, StoredDataCorrupt, StoreError, TenutoError, WaitNotOpen
from tenuto.model.commit import Append
from tenuto.model.event import EventType, NewEvent
from tenuto.model.input import Consume, Input, InputKind
from tenuto.model.lane import Lane
from tenuto.runtime.cache.replica import Replica
from tenuto.runtime.change.actions import SendMessage
from tenuto.runtime.change.pipeline import Pipeline
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.queue.commands import Commands
from tenuto.runtime.run.begin import TurnFactory
from tenuto.runtime.run.first_message import begins_turn, first_message_of, notice_message
from tenuto.runtime.run.refusal import NOT_HERE, refusal_in, refuse
from tenuto.runtime.session.session_view import MESSAGES
from tenuto.store.store import Store
from tenuto.writing.error_record import error_record
from tenuto.writing.lane_claim import free_lane, under

_log = logging.getLogger("tenuto.runtime")


class InputHandler:
    """Takes input: each is consumed by the one commit that does what it asks for."""

    def __init__(self, store: Store, beginnings: TurnFactory, pipeline: Pipeline, commands: Commands) -> None:
        self._store = store
        self._beginnings = beginnings
        self._pipeline = pipeline
        self._commands = commands
        self._left: set[str] = set()

    def is_for_others(self, given: Input) -> bool:
        """Tell whether an input is an action that only another process can read; what is behind it goes on."""
        if given.kind is not InputKind.COMMAND or given.unreadable is not None:
            return False
        try:
            self._commands.read(given.body)
        except ActionNotRegistered as error:
            if error.action not in self._left:
                self._left.add(error.action)
                _log.warning("The input %s of %s is left to others: %s", given.input_id, given.key, error)
            return True
        except Exception:
            return False  # whoever takes it finds out
        return False

    async def take(self, copy: Replica, lane: Lane, given: Input) -> Turn | None:
        """Take one input: a message begins a turn, a command is executed, a wake that finds nothing to do is over.

        The turn that it began has the lane; if there is none, the lane is free. What nobody could ever take is settled
        as refused. What stands in the way here, or for the moment, is raised, and the input stays queued.
        """
        try:
            if given.unreadable is not None:
                raise StoredDataCorrupt(given.unreadable, key=given.key)
            live = await self._taken(copy, lane, given)
        except (ClaimLost, WaitNotOpen):
            live = None  # cancelled, or what is given up was answered, at this very moment
        except Exception as error:
            refusal = error if given.unreadable is not None else refusal_in(error)
            if refusal is None:
                raise
            await self.refuse(given, refusal)
            live = None
        if live is None:
            await free_lane(self._store, lane)
        return live

    async def refuse(self, given: Input, error: Exception) -> None:
        """Settle an input as refused, and tell of it."""
        if await refuse(self._store, given, error) and begins_turn(given):
            await self._pipeline.deed_failed(given.key, SendMessage.__name__, error)

    async def _taken(self, copy: Replica, lane: Lane, given: Input) -> Turn | None:
        if begins_turn(given):
            return await self._beginnings.begin(
                copy, lane, await first_message_of(self._store, given, copy), warm=False
            )
        if given.kind is InputKind.COMMAND:
            await self._command(copy, lane, given)
        else:
            await self._woken(copy, lane, given)
        return None

    async def _command(self, copy: Replica, lane: Lane, given: Input) -> None:
        consume = (Consume(input_id=given.input_id),)
        try:
            action = self._commands.read(given.body)
            await self._pipeline.execute(copy, lane, action, consume=consume, input_id=given.input_id)
        except (ClaimLost, WaitNotOpen, StoreError, *NOT_HERE):
            raise  # the command is not at fault: it waits for the next runner
        except Exception as error:
            if isinstance(error, TenutoError) and error.retryable:
                raise
            await self._consumed(lane, given, error_record(error))

    async def _woken(self, copy: Replica, lane: Lane, given: Input) -> None:
        told = notice_message(given, self._beginnings.declared(copy))
        if told is None:
            await self._consumed(lane, given)
            return
        await self._store.commit(
            under(
                lane,
                expected_version=copy.version,
                save=True,
                logs={MESSAGES: Append(items=(told,))},
                consume=(Consume(input_id=given.input_id, log=MESSAGES, item=0),),
            )
        )

    async def _consumed(self, lane: Lane, given: Input, error: JSON = None) -> None:
        """Be done with an input that changes nothing, and tell of its failure if it failed."""
        failed = NewEvent(type=EventType.SESSION_ACTION_FAILED, data={"input_id": given.input_id, "error": error})
        consume = (Consume(input_id=given.input_id),)
        await self._store.commit(under(lane, consume=consume, events=() if error is None else (failed,)))
