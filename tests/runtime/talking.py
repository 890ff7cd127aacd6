"""What tests of the runtime listen with, look with and talk to."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, get_args

from tenuto import Store, open_store
from tenuto.codec import JSON
from tenuto.model.session import Key
from tenuto.runtime.change.hooks import Hook, on
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.session_view import SessionView
from tenuto.runtime.stream.notices import Failure, Notice
from tenuto.testing.faults import FaultyBackend
from tenuto.words import Stage
from tests.conftest import OurHarness
from tests.runtime.runtimes import opened

Change = Callable[[SessionView], Awaitable[SessionView]]

STAGES: tuple[Stage, ...] = get_args(Stage)

_LANE = ("generation", "armed", "nonce", "holder", "lane_expires_at")


@program
async def echo(turn: Turn) -> None:
    """Answer with what was said."""
    turn.append(f"re: {turn.text}")


@program
async def broken(turn: Turn) -> None:
    """Change a lot, and fail."""
    turn.state.update(mood="sour")
    turn.append({"role": "assistant", "content": "never said"})
    raise ValueError("no luck")


class Heard:
    """A listener that keeps what it hears, without what is told of other sessions."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def __call__(self, notice: Notice) -> None:
        self.notices.append(notice)

    @property
    def names(self) -> list[str]:
        """The notices' class names, in order; they are forgotten with this."""
        return [type(each).__name__ for each in self.take()]

    def take(self) -> list[Notice]:
        """Return the notices and forget them."""
        notices, self.notices = self.notices, []
        return notices


class Watching:
    """Hooks at every stage that note it, and change or refuse the session at some of them."""

    def __init__(self, **at: Change) -> None:
        self.stages: list[str] = []
        self.at = at
        self.hooks = [self._at(stage) for stage in STAGES]

    def _at(self, stage: Stage) -> Hook:
        async def noted(session: SessionView) -> SessionView:
            self.stages.append(stage)
            change = self.at.get(stage)
            return session if change is None else await change(session)

        return on(stage, noted)

    def take(self) -> list[str]:
        """Return the stages and forget them."""
        stages, self.stages = self.stages, []
        return stages


class Ours:
    """A runtime with hooks that watch and a listener that keeps what it hears; `opened` or `created` opens it."""

    def __init__(self, store: Store, **at: Change) -> None:
        self.heard, self.watching = Heard(), Watching(**at)
        self.store = store
        self.runtime = SessionRuntime(store, [echo, broken], hooks=self.watching.hooks, listeners=[self.heard])

    async def opened(self) -> "Ours":
        """Open the runtime."""
        await self.runtime.__aenter__()
        return self

    async def created(self, program: str = "echo") -> "Ours":
        """Open the runtime and create the session, undisturbed by what is to go wrong later."""
        await self.opened()
        await (await opened(self.store, [echo, broken])).create(program, {"mood": "calm"}, session_id="s")
        return self

    def failure(self) -> Failure:
        """Return the one failure that was told; nothing else may have failed."""
        (found,) = [notice for notice in self.heard.notices if isinstance(notice, Failure)]
        return found


async def faulty(harness: OurHarness) -> tuple[Store, FaultyBackend]:
    """Open a store that fails when it is told to."""
    faults = FaultyBackend((await harness.open()).backend)
    return Store(faults), faults


class Refused(Exception):
    """What a hook or an action of a test raises."""


async def refuse(session: SessionView) -> SessionView:
    raise Refused("not this one")


def setting(**fields: JSON) -> Change:
    """Return a change that sets fields."""

    async def change(session: SessionView) -> SessionView:
        return session.with_fields(**fields)

    return change


async def streamed(store: Store, key: Key, after: int = 0) -> list[tuple[str, Any]]:
    """Return the type and the data of every event in a session's durable stream."""
    page = await store.events.read(key, after=after)
    return [(event.type, event.data) for event in page.events]


def as_streamed(notices: list[Notice]) -> list[tuple[str, Any]]:
    """Return notices as a stream keeps them."""
    return [(each.type, each.event().data) for each in notices]


async def rows(store: Store) -> Any:
    """Return every row of the store but for the lanes' columns, which a refused action may leave moved on."""
    dump = await store.dump()
    lane_less = [{n: v for n, v in row.items() if n not in _LANE} for row in dump["session"]]
    return {**dump, "session": lane_less}


_MOVED_BY_EVENTS = ("commit_no", "event_seq", "updated_at")


async def without_stream(store: Store) -> Any:
    """Return the rows of the store without the events, and without what the commit of an event alone moves."""
    dump = await rows(store)
    kept = [{n: v for n, v in row.items() if n not in _MOVED_BY_EVENTS} for row in dump["session"]]
    return {**dump, "session": kept, "event": [], "receipt": []}


def said(session: SessionView) -> list[Any]:
    """Return the texts of a session's messages."""
    return [message["content"] for message in session.messages if isinstance(message, Mapping)]


async def started(store: Store, **options: Any) -> SessionRuntime:
    runtime = await opened(store, [echo, broken], **options)
    await runtime.create("echo", {"mood": "calm"}, session_id="s")
    return runtime


async def raised_by(attempt: Awaitable[Any]) -> type[Exception] | None:
    """Return the very class of what is raised."""
    try:
        await attempt
    except Exception as error:
        return type(error)
    return None


async def _send_once(address: str, options: dict[str, Any], session_id: str, text: str) -> None:
    async with open_store(address, **options) as store:
        outcome = await (await opened(store, [echo])).send(session_id, text)
    print(json.dumps({"status": outcome.status, "version": outcome.version, "text": outcome.text}))


if __name__ == "__main__":
    asyncio.run(_send_once(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3], sys.argv[4]))
