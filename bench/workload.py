"""The one workload: a turn of two 480-byte messages of random text and a small document, under a held lane."""

import random
import string
from dataclasses import dataclass
from itertools import count
from typing import Any

from tenuto.ids import new_id
from tenuto.model.commit import Append, BeginRun, Commit, EndRun, Receipt
from tenuto.model.lane import Lane, Owner
from tenuto.model.run import RunStatus
from tenuto.model.session import SessionKey
from tenuto.store.store import Store

Messages = tuple[dict[str, Any], ...]

MESSAGE_BYTES = 480
_LETTERS = string.ascii_letters + string.digits + "    "
_CHUNK = 2_000
_HOUR = 3600.0

_random = random.Random(20_251)
_numbers = count(1)


def message(role: str) -> dict[str, Any]:
    """Return a message of random text, which no storage can compress."""
    return {"role": role, "content": "".join(_random.choices(_LETTERS, k=MESSAGE_BYTES))}


def messages() -> Messages:
    """Return what one turn adds."""
    return message("user"), message("assistant")


def document(turns: int) -> dict[str, Any]:
    """Return the state beside the messages."""
    return {"topic": "the weather in Lisbon", "turns": turns}


def a_key() -> SessionKey:
    """Return a key not used before."""
    return SessionKey(f"session-{next(_numbers)}")


@dataclass(slots=True)
class WarmSession:
    """A session whose lane is held: every turn is one commit."""

    store: Store
    key: SessionKey
    lane: Lane
    turns: int = 0

    @classmethod
    async def begin(cls, store: Store, *, entries: int = 0) -> "WarmSession":
        """Create a session with this many messages and take its lane."""
        key = a_key()
        await store.create(key, state={"messages": []} | document(0), logs={"messages"})
        session = await cls.take(store, key)
        for start in range(0, entries, _CHUNK):
            items = tuple(message("user") for _ in range(min(_CHUNK, entries - start)))
            await store.commit(session.next_turn(items))
        return session

    @classmethod
    async def take(cls, store: Store, key: SessionKey) -> "WarmSession":
        """Take the lane of a session for as long as the bench may last."""
        owner = Owner(owner_id="bench", incarnation="bench-1")
        return cls(store, key, await store.lanes.acquire(key, owner, ttl=_HOUR))

    async def turn(self, items: Messages) -> Receipt:
        """Do one warm turn."""
        return await self.store.commit(self.next_turn(items))

    def next_turn(self, items: Messages) -> Commit:
        """Return the commit of a whole turn: a run that begins, appends and completes."""
        self.turns += 1
        run_id = new_id()
        return Commit(
            key=self.key,
            operation_id=new_id(),
            life=self.lane.life,
            generation=self.lane.generation,
            run=BeginRun(run_id=run_id, invocation_id=f"inv-{run_id}"),
            save=True,
            document=document(self.turns),
            logs={"messages": Append(items=items)},
            end=EndRun(status=RunStatus.COMPLETED),
        )
