"""The workload through the runtime: a session whose program answers with the message it is given."""

from typing import Any

from bench.workload import Messages, a_key, document
from tenuto.runtime.program.program import Program, program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.turn.context import DEFAULT_STEPS
from tenuto.store.store import Store

_replies: dict[str, Any] = {}
"""What each session's program says next."""


@program
async def replies(turn: Turn) -> None:
    """Reply at once."""
    turn.append(_replies[turn.session_id])


class Talk:
    """A session of the workload that a runtime does turns on."""

    def __init__(self, runtime: SessionRuntime, session_id: str, name: str) -> None:
        self.session_id = session_id
        self._runtime = runtime
        self._name = name

    @classmethod
    async def begin(cls, store: Store, runs: Program[Any] = replies, *, steps: int = DEFAULT_STEPS) -> "Talk":
        """Create a session of this program, with its own runtime, which goes with the store."""
        runtime = await SessionRuntime(store, [runs], steps=steps).__aenter__()
        return await cls._create(runtime, runs.name)

    async def another(self) -> "Talk":
        """Create another session of the same runtime and program."""
        return await self._create(self._runtime, self._name)

    @classmethod
    async def _create(cls, runtime: SessionRuntime, name: str) -> "Talk":
        session_id = a_key().session_id
        await runtime.create(name, {"messages": []} | document(0), session_id)
        return cls(runtime, session_id, name)

    async def turn(self, items: Messages) -> None:
        """Do one turn: the caller sends the first message, the program adds the second."""
        asked: Any
        asked, _replies[self.session_id] = items
        outcome = await self._runtime.send(self.session_id, asked)
        assert outcome.status == "completed", outcome
