"""A program for tests of who runs when: its turns can be held, and it notices if two run at once."""

import asyncio
from collections import defaultdict
from typing import Any

from tenuto.errors import LaneBusy
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tests.polling import PATIENCE


class GatedProgram:
    """Replies to what was said; a message that begins with "hold" waits until it is let go."""

    def __init__(self, name: str = "gate") -> None:
        self.name = name
        self.version = "1"
        self.said: list[str] = []
        self.most_at_once = 0
        self._entered: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._let_go: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._now = 0

    async def run(self, turn: Turn) -> None:
        text = said(turn.input)
        self.said.append(text)
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        self._entered[text].set()
        try:
            if text.startswith("hold"):
                await self._let_go[text].wait()
            if text.startswith("fail"):
                turn.state.update(lost=text)
                raise ValueError(text)
            turn.append({"role": "assistant", "content": f"re: {text}"})
            return
        finally:
            self._now -= 1

    async def entered(self, text: str) -> None:
        """Wait until a turn with this message runs."""
        async with asyncio.timeout(PATIENCE):
            await self._entered[text].wait()
        self._entered[text].clear()

    def let_go(self, text: str) -> None:
        """Let the turn with this message go on."""
        self._let_go[text].set()


def said(message: Any) -> str:
    """Return the text of a message."""
    return str(message["content"])


async def talk_of(runtime: SessionRuntime, session_id: str) -> list[str]:
    """Return what was said in a session, in order."""
    return [said(message) for message in (await runtime.get(session_id)).messages]


async def events_of(runtime: SessionRuntime, session_id: str, name: str) -> list[Any]:
    """Return what the session's stream has of one type of event, in order."""
    return [frame.data async for frame in runtime.session(session_id).events(live=False) if frame.name == name]


async def lane_is_free(runtime: SessionRuntime, session_id: str) -> bool:
    """Tell whether anybody may take the session at once."""
    lane = await runtime.store.lanes.inspect(session_id)
    return lane is None or lane.state == "free"


async def is_busy(runtime: SessionRuntime, session_id: str) -> bool:
    """Tell whether a message would be refused as busy; one that is not is a turn."""
    try:
        await runtime.send(session_id, "are you busy?", when_busy="reject")
    except LaneBusy:
        return True
    return False
