"""The store's scenes: three turns, a writer killed in the middle of the fourth, and its takeover."""

import asyncio
import os

from rich.table import Table

from demos.tour.stage import console, run_and_kill, say, title
from tenuto import Store, open_store
from tenuto.model.commit import Append, BeginRun, Commit, EndRun, NewCheckpoint, TakeRun
from tenuto.model.event import NewEvent
from tenuto.model.lane import Lane, Owner
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import Profile, SessionKey
from tenuto.store.host import this_process

KEY = SessionKey("customer-42")
QUESTIONS = ("Where is my order?", "It is order 7.", "When will it come?", "Then please refund it.")
ANSWERS = ("Which order is it?", "It left us on Monday.", "On Thursday.", "Your refund is on its way.")


def owner(name: str) -> Owner:
    """Return this process as an owner of lanes."""
    return Owner(owner_id=name, incarnation=str(os.getpid()), host=this_process())


def begin(turn: int, lane: Lane) -> Commit:
    """Return the commit that accepts a turn's question; the operation id names the turn, so a repeat is recognised."""
    return Commit(
        key=KEY,
        operation_id=f"turn-{turn}/begin",
        life=lane.life,
        generation=lane.generation,
        run=BeginRun(run_id=f"run-{turn}", invocation_id=f"invocation-{turn}"),
        save=True,
        logs={"messages": Append(items=({"role": "user", "content": QUESTIONS[turn - 1]},))},
        events=(NewEvent(type="run_started", data={"turn": turn}),),
    )


def thought(turn: int, lane: Lane) -> Commit:
    """Return the checkpoint in the middle of a turn."""
    return Commit(
        key=KEY,
        operation_id=f"turn-{turn}/thought",
        life=lane.life,
        generation=lane.generation,
        run=RunRef(run_id=f"run-{turn}"),
        checkpoint=NewCheckpoint(
            step=1, cursor="answer", document={"turns": turn - 1, "/plan": f"answer question {turn}"}
        ),
    )


def finish(turn: int, lane: Lane, attempt: int = 1) -> Commit:
    """Return the commit that ends a turn: answer, state, run and lane in one."""
    return Commit(
        key=KEY,
        operation_id=f"turn-{turn}/finish",
        life=lane.life,
        generation=lane.generation,
        run=RunRef(run_id=f"run-{turn}", attempt=attempt),
        save=True,
        document={"turns": turn},
        logs={"messages": Append(items=({"role": "assistant", "content": ANSWERS[turn - 1]},))},
        profile={"preview": ANSWERS[turn - 1]},
        events=(NewEvent(type="run_ended", data={"turn": turn}),),
        end=EndRun(status=RunStatus.COMPLETED),
        disarm=True,
    )


async def write_until_killed(url: str) -> None:
    """Run three whole turns and half of a fourth, then wait to be killed."""
    async with open_store(url) as store:
        await store.create(
            KEY,
            state={"messages": [], "turns": 0},
            logs={"messages"},
            profile=Profile(agent="support", title="Order 7", user_id="u-9"),
        )
        for turn in (1, 2, 3):
            lane = await store.lanes.acquire(KEY, owner("writer"))
            for commit in (begin(turn, lane), thought(turn, lane), finish(turn, lane)):
                await store.commit(commit)
            print(f"turn {turn}", flush=True)
        lane = await store.lanes.acquire(KEY, owner("writer"))
        await store.commit(begin(4, lane))
        await store.commit(thought(4, lane))
        print("in the middle of turn 4", flush=True)
        await asyncio.Event().wait()


async def take_over(store: Store) -> None:
    """Show what the killed writer left behind, and finish its turn."""
    before = await store.load(KEY)
    assert before is not None
    checkpoint = await store.checkpoints.latest(KEY)
    lane = await store.lanes.acquire(KEY, owner("successor"))
    assert lane.displaced is not None
    (orphan,) = await store.lanes.orphans()
    assert checkpoint is not None
    console.print(
        f"   {len(before.state['messages'])} messages, version {before.version}: the accepted question is kept"
    )
    console.print(f"   lane taken over from {lane.displaced.owner.owner_id!r} at once: its process no longer exists")
    console.print(f"   {orphan.run_id} is listed as an orphan, with its checkpoint at step {checkpoint.step}")
    repeated = await store.commit(begin(4, lane))
    console.print(f"   the dead writer's first commit, sent again: replayed={repeated.replayed}, nothing duplicated")
    taken = Commit(
        key=KEY,
        operation_id="turn-4/take",
        life=lane.life,
        generation=lane.generation,
        run=TakeRun(run_id="run-4", attempt=1),
    )
    await store.commit(taken)
    await store.commit(finish(4, lane, attempt=2))


async def check(store: Store) -> None:
    """Compare the stored messages with what was sent; a difference ends the tour with an error."""
    record = await store.load(KEY)
    assert record is not None
    said = [text for pair in zip(QUESTIONS, ANSWERS, strict=True) for text in pair]
    stored = [message["content"] for message in record.state["messages"]]
    if stored != said:
        raise SystemExit(f"lost or duplicated: {stored}")
    console.print(f"   [green]{len(stored)} messages, each once and in order; version {record.version}[/green]")


async def show(store: Store) -> None:
    """Print the session table."""
    table = Table(title="sessions")
    for column in ("session", "status", "version", "messages", "forked from", "title"):
        table.add_column(column, no_wrap=True)
    for summary in await store.list():
        head = await store.head(summary.key)
        assert head is not None
        fork = head.profile.forked_from
        table.add_row(
            summary.session_id,
            summary.status,
            str(summary.version),
            str(summary.counts.get("messages", 0)),
            f"{fork.session_id} at commit {fork.commit_number}" if fork else "",
            summary.title,
        )
    console.print(table)


async def underneath(url: str) -> None:
    """Show the same with the store alone, commit by commit."""
    title("4. The store alone: a writer is killed in its fourth turn")
    await run_and_kill("write", url)
    async with open_store(url) as store:
        title("5. Another process opens the file")
        await take_over(store)
        title("6. Nothing is lost, nothing is duplicated")
        await check(store)
        title("7. A fork in the middle of the third turn copies no message")
        third = await store.checkpoints.latest(KEY, run_id="run-3")
        assert third is not None
        rows = len((await store.dump())["entry"])
        await store.fork(KEY, "what-if", at=third.commit_number)
        say(f"entries stored before and after: {rows} and {len((await store.dump())['entry'])}")
        await show(store)
