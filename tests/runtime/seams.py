"""Where tests look behind a runtime's face: every seam has a name here, and none is reached into elsewhere."""

from typing import Any

from tenuto import SessionRuntime
from tenuto.model.outgoing import Outgoing
from tenuto.model.session import SessionKey
from tenuto.runtime.cache.replica import Replica
from tenuto.runtime.turn.context import TurnContext


def live_turns(runtime: SessionRuntime) -> list[TurnContext]:
    """Return the turns that run in a runtime now."""
    return list(runtime._live)


async def begin_and_lose(runtime: SessionRuntime, key: SessionKey, message: Any, input_key: str) -> str:
    """Begin a turn with a message, let its runner be gone before the program runs, and return the run's id."""
    begun = await runtime._sender.begin(key, message, input_key=input_key, body={"message": message})
    assert isinstance(begun, TurnContext)
    await begun.writer.abandon()
    return begun.run_id


def pop_replica(runtime: SessionRuntime, key: SessionKey) -> Replica | None:
    """Take the replica of a session out of a runtime's memory."""
    return runtime._dispatcher._replicas.pop(key)


async def deliver(runtime: SessionRuntime, item: Outgoing) -> None:
    """Deliver one outgoing item."""
    await runtime._deliveries.deliver(item)
