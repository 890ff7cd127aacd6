"""What the other processes do: `python -m tests.crash.workers VERB JSON`. One JSON value per line comes back."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from tenuto import Store, open_store
from tenuto.errors import LaneBusy, SessionDeleted, SessionExists, TenutoError, VersionConflict
from tenuto.ids import new_id
from tenuto.model.session import SessionKey
from tenuto.testing.factories import a_save, an_owner
from tests.crash.turns import a_whole_turn, this_owner
from tests.polling import until


def say(value: Any) -> None:
    """Report to the test; once the line is out it counts, whatever happens to this process."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def hear() -> str:
    """Wait for the test's next line; empty when it has closed the pipe."""
    return await asyncio.to_thread(sys.stdin.readline)


async def turns(store: Store, *, session: str, start: int) -> None:
    """Commit whole turns under the lane until killed, naming each once its receipt is here."""
    key = SessionKey(session)
    lane = await store.lanes.acquire(key, this_owner(session))
    number = start
    while True:
        receipt = await store.commit(a_whole_turn(key, f"{session}-{number}", lane=lane))
        say(receipt.operation_id)
        number += 1


async def add(store: Store, *, session: str, times: int) -> None:
    """Read, add one and commit at the version read, again on conflict."""
    key = SessionKey(session)
    say("ready")
    await hear()
    conflicts = 0
    for number in range(times):
        operation_id = new_id()
        while True:
            record = await store.load(key)
            assert record is not None
            total = record.state["total"] + 1
            commit = a_save(
                key, number, document={"total": total}, operation_id=operation_id, expected_version=record.version
            )
            try:
                await store.commit(commit)
                break
            except VersionConflict as conflict:
                assert conflict.found is not None
                assert conflict.found > record.version
                conflicts += 1
    say({"conflicts": conflicts})


async def add_through_lives(store: Store, *, session: str) -> None:
    """Until the pipe closes: save over whatever life the id has at the version read, then try that copy once more."""
    key = SessionKey(session)
    say("ready")
    await hear()
    end = asyncio.create_task(hear())
    landed: list[tuple[int, int, int]] = []
    stale: list[int] = []
    while not end.done():
        record = await store.load(key)
        if record is None or record.head is None:
            await asyncio.sleep(0.001)  # deleted just now; spinning would take the deleter's processor
            continue
        life, version = record.head.life, record.version
        try:
            receipt = await store.commit(a_save(key, version, life=life, expected_version=version))
        except (VersionConflict, SessionDeleted):
            continue
        landed.append((receipt.life, receipt.version, receipt.commit_number))
        try:
            won = await store.commit(a_save(key, "stale", life=life, expected_version=version))
            stale.append(won.version)
        except (VersionConflict, SessionDeleted):
            pass
    say({"landed": landed, "stale copies that won": stale})


async def recreate(store: Store, *, session: str, times: int) -> None:
    """Delete the session and create it again."""
    key = SessionKey(session)
    say("ready")
    await hear()
    landed: list[tuple[int, int, int]] = []
    for _ in range(times):
        await store.delete(key)
        receipt = await store.create(key, state={"messages": []}, logs={"messages"})
        landed.append((receipt.life, receipt.version, receipt.commit_number))
        # Let the others get a few saves in before the next delete.
        await until(partial(_reached, store, key, receipt.version + 3), pause=0.001)
    say({"landed": landed, "stale copies that won": []})


async def race(store: Store, *, name: str) -> None:
    """Take each lane the test names, as soon as it names it, and say whether we got it."""
    say("ready")
    while session := (await hear()).strip():
        try:
            lane = await store.lanes.acquire(session, an_owner(name))
            say({"won": lane.generation})
        except LaneBusy as busy:
            say({"lost": busy.generation, "to": busy.owner})


async def create_once(store: Store, *, name: str) -> None:
    """Create each session the test names and say whether we were the first."""
    say("ready")
    while session := (await hear()).strip():
        try:
            say({"won": (await store.create(session, state={"by": name})).version})
        except SessionExists as exists:
            say({"lost": exists.found_version})


async def busy(store: Store, *, session: str) -> None:
    """Commit whole turns until the pipe closes, noting every error a caller got."""
    key = SessionKey(session)
    await store.create(key, operation_id="create")
    say("ready")
    end = asyncio.create_task(hear())
    landed, errors = 0, []
    while not end.done():
        try:
            await store.commit(a_whole_turn(key, f"{session}-{landed}"))
            await store.head(key)
            landed += 1
        except TenutoError as error:
            errors.append(repr(error))
            break
    say({"landed": landed, "errors": errors})


async def open_and_close(store: Store) -> None:
    """Do nothing but look, and go."""
    say(len(await store.list()))


VERBS: dict[str, Callable[..., Awaitable[None]]] = {
    verb.__name__: verb for verb in (turns, add, add_through_lives, recreate, race, create_once, busy, open_and_close)
}


async def _reached(store: Store, key: SessionKey, version: int) -> bool:
    head = await store.head(key)
    return head is not None and head.version >= version


async def main(verb: str, address: str, options: dict[str, Any], arguments: dict[str, Any]) -> None:
    async with open_store(address, **options) as store:
        await VERBS[verb](store, **arguments)


if __name__ == "__main__":
    asyncio.run(main(**json.loads(sys.argv[1])))
