"""Input that is due, taken one at a time under the session's lane."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import ClaimLost, LaneLost, MessageRefused, StoreError, WaitNotOpen
from tenuto.model.commit import Append
from tenuto.model.event import NewEvent
from tenuto.model.inbox import Consume, Input, InputKind
from tenuto.model.lane import Lane
from tenuto.session.beginning import Beginnings
from tenuto.session.commands import Commands
from tenuto.session.copy import Copy
from tenuto.session.failure import error_record
from tenuto.session.given import given_by, notice_message
from tenuto.session.lanes import free_lane, under
from tenuto.session.live import LiveTurn
from tenuto.session.pipeline import Pipeline
from tenuto.session.value import MESSAGES
from tenuto.store.port import Store


class Inputs:
    """Takes input: each is consumed by the one commit that does what it asks for."""

    def __init__(self, store: Store, beginnings: Beginnings, pipeline: Pipeline, commands: Commands) -> None:
        self._store = store
        self._beginnings = beginnings
        self._pipeline = pipeline
        self._commands = commands

    async def take(self, copy: Copy, lane: Lane, given: Input) -> LiveTurn | None:
        """Take one input: a message begins a turn, a command is executed, a wake that finds nothing to do is over.

        The turn that it began has the lane; if there is none, the lane is free.
        """
        match given.kind:
            case InputKind.MESSAGE:
                return await self._begun(copy, lane, given)
            case InputKind.COMMAND:
                with suppress(ClaimLost):  # cancelled at this very moment
                    await self._command(copy, lane, given)
            case InputKind.WAKE:
                if isinstance(given.body, Mapping) and "message" in given.body:
                    return await self._begun(copy, lane, given)
                with suppress(ClaimLost):
                    await self._woken(copy, lane, given)
        await free_lane(self._store, lane)
        return None

    async def _begun(self, copy: Copy, lane: Lane, given: Input) -> LiveTurn | None:
        body: Any = given.body
        try:
            self._beginnings.declared(copy).item(body["message"])
        except MessageRefused as error:
            await self._consumed(lane, given, error_record(error))
            await free_lane(self._store, lane)
            return None
        try:
            return await self._beginnings.begin(copy, lane, await given_by(self._store, given, copy), warm=False)
        except (ClaimLost, WaitNotOpen):
            return None  # cancelled, or what is given up was answered, at this very moment

    async def _command(self, copy: Copy, lane: Lane, given: Input) -> None:
        consume = (Consume(input_id=given.input_id),)
        try:
            action = self._commands.read(given.body)
            await self._pipeline.execute(copy, lane, action, consume=consume, input_id=given.input_id)
        except (LaneLost, ClaimLost, StoreError):
            raise  # the command is not at fault: it waits for the next runner
        except Exception as error:
            await self._consumed(lane, given, error_record(error))

    async def _woken(self, copy: Copy, lane: Lane, given: Input) -> None:
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
        failed = NewEvent(type="session_action_failed", data={"input_id": given.input_id, "error": error})
        consume = (Consume(input_id=given.input_id),)
        await self._store.commit(under(lane, consume=consume, events=() if error is None else (failed,)))
