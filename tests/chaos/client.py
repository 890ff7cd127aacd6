"""A client: a mixed load by its dice. Each deed is noted before and after; a message is sent until it is heard of."""

import asyncio
import random
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tenuto import SessionRuntime, Store
from tenuto.errors import InvalidHistory, LaneBusy, SessionExists, SessionNotFound, StatusRefused, TenutoError
from tests.chaos.cast import BY_SESSION, CAST, MEEK, MORTAL, WILD, Role
from tests.chaos.deeds import Deeds
from tests.chaos.ledger import ACK, CUT, FAULT, INTENT, REFUSED, UNKNOWN, UNTYPED, Ledger, Note, read_notes
from tests.chaos.programs import TOOLS

HANDS = 12
"""How many things a client does at once."""

PATIENCE = 4.0
_GLANCE = 0.5
_MANY = 15
_FRAMES = 8
TRIES = 10

_NOT_DONE = (LaneBusy, SessionNotFound, StatusRefused, InvalidHistory, SessionExists)
"""Refusals that say that nothing was written by this very call."""

_TALKED_TO = [role for role in CAST if role.nature != MEEK for _ in range(3 if role.program == "agent" else 1)]

_WEIGHTS = {
    "say": 40,
    "hurry": 12,
    "answer": 24,
    "overrule": 8,
    "ask": 4,
    "stop": 4,
    "resume": 2,
    "give_up": 1,
    "cancel": 2,
    "fork": 3,
    "rewind": 2,
    "clear": 1,
    "delete": 3,
    "create": 4,
    "change": 4,
    "close": 2,
    "command": 3,
    "settle": 3,
    "upkeep": 2,
}


class Performer:
    """Does deeds on record: what is meant before, what was heard after."""

    def __init__(self, name: str, runtime: SessionRuntime, ledger: Ledger) -> None:
        self._ledger = ledger
        self._deeds = Deeds(name, runtime)

    async def repeat(self, facts: Note, dice: random.Random) -> Note:
        """Do something until it is known to be done or refused; return what was heard, if anything was."""
        for attempt in range(TRIES):
            if attempt and facts.get("verb") == "send":
                facts = facts | {"verb": "start"}  # its first try may have brought it in: that is soon known
            heard = await self.do(facts, cut=None if attempt else _cut(dice))
            if heard is not None:
                return heard
            await asyncio.sleep(0.02 * 2 ** min(attempt, 5))
        return {}

    async def do(self, facts: Note, *, cut: float | None) -> Note | None:
        """Do something once, on record; return what was heard of it, nothing if it was refused, None if who knows."""
        number = self._ledger.intend(**facts)
        try:
            async with asyncio.timeout(PATIENCE if cut is None else cut):
                heard = await self._deeds.do(facts)
        except TimeoutError:
            self._ledger.write(FAULT, kind="cancelled call")
            self._ledger.write(CUT, n=number)
            return None
        except asyncio.CancelledError:
            self._ledger.write(CUT, n=number)
            raise
        except TenutoError as error:
            nothing_written = isinstance(error, _NOT_DONE) and not _may_be_queued(facts, error)
            note = REFUSED if nothing_written else UNKNOWN
            self._ledger.write(note, n=number, error=type(error).__name__, message=error.message[:200])
            return {} if nothing_written or not facts.get("repeats") else None
        except Exception as error:
            trace = "".join(traceback.format_exception(error)[-_FRAMES:])
            self._ledger.write(UNTYPED, n=number, error=repr(error), where=facts["deed"], trace=trace)
            return {}
        self._ledger.write(ACK, n=number, **heard)
        return heard


class Client:
    """Does one thing after the other with every hand; a former one's unanswered messages come first."""

    def __init__(
        self,
        name: str,
        index: int,
        folder: Path,
        dice: Callable[[str], random.Random],
        store: Store,
        runtime: SessionRuntime,
        ledger: Ledger,
    ) -> None:
        self._name = name
        self._store = store
        self._runtime = runtime
        self._performer = Performer(name, runtime, ledger)
        self._dice_of = dice
        self._said = 0
        self._left = unanswered(read_notes((folder / "ledger").glob(f"client-{index}-*.jsonl")))

    async def work(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(HANDS):
                group.create_task(self._hand(self._dice_of(f"hand {number}")))

    async def _hand(self, dice: random.Random) -> None:
        while True:
            if self._left:
                await self._performer.repeat(self._left.pop(), dice)
                continue
            (deed,) = dice.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
            await getattr(self, deed)(dice)

    async def say(self, dice: random.Random) -> None:
        """Send, start or queue a message; what its turn then waits for is answered, mostly."""
        facts = self._message(dice.choice(_TALKED_TO), dice)
        heard = await self._performer.repeat(facts, dice)
        if heard.get("status") == "suspended" and dice.random() < 0.7:
            for wait in await self._looked(self._runtime.session(facts["session"]).waits(children=False), []):
                await self._answer(facts["session"], wait, dice)

    async def overrule(self, dice: random.Random) -> None:
        """Begin a turn, perhaps let it wait and go on, and take it back for another message while it is at work."""
        role = dice.choice([role for role in CAST if role.nature == MEEK])
        first = self._message(role, dice) | {"verb": "start", "when_busy": "queue"}
        if role.program == "agent":
            first |= {"verb": "send", "text": f"{first['key']} {dice.choice(('ask look', 'ship', 'pay+ask pay'))}"}
        await self._performer.repeat(first, dice)
        for wait in await self._looked(self._runtime.session(role.session).waits(children=False), []):
            await self._answer(role.session, wait, dice)
        await asyncio.sleep(dice.uniform(0, 0.15))
        await self._performer.repeat(self._message(role, dice) | {"verb": "send", "when_busy": "rollback"}, dice)

    async def hurry(self, dice: random.Random) -> None:
        """Queue several messages for one session, all at once, unless too many are queued there already."""
        role = dice.choice([role for role in _TALKED_TO if role.program in ("talker", "notes")])
        if len(await self._looked(self._store.inbox.list(role.session, limit=_MANY), ())) == _MANY:
            return
        options = {"verb": "enqueue", "boundary": None, "delay": None}
        await asyncio.gather(*(self._performer.repeat(self._message(role, dice) | options, dice) for _ in range(5)))

    def _message(self, role: Role, dice: random.Random, session: str | None = None) -> Note:
        self._said += 1
        key = f"{self._name}.{self._said}"
        verb = dice.choices(("send", "enqueue", "start"), (5, 4, 1))[0]
        facts: Note = {"deed": "message", "session": session or role.session, "key": key, "verb": verb, "repeats": True}
        facts["text"] = f"{key} {_plan(role.program, dice)}".strip()
        if verb == "enqueue":
            facts["boundary"] = dice.choice((None, None, "after_step", "before_completion"))
            facts["delay"] = dice.choice((None, None, 0.3)) if facts["boundary"] is None else None
        else:
            policies = ("reject", "queue", "queue", "interrupt") + (("rollback",) if role.nature == WILD else ())
            facts["when_busy"] = dice.choice(policies)
        return facts

    async def answer(self, dice: random.Random) -> None:
        """Answer something that some session waits for, children included."""
        session = await self._any_session(dice)
        waits = [] if session is None else await self._looked(self._runtime.session(session).waits(children=False), [])
        if not waits:
            return
        await self._answer(str(session), dice.choice(waits), dice)

    async def _answer(self, session: str, wait: Any, dice: random.Random) -> None:
        value: Any
        match wait.kind:
            case "approval":
                value = dice.random() < 0.8
            case "in_doubt":
                value = {"outcome": dice.choice(("done", "done", "failed", "retry")), "result": "so they say"}
            case "tool_result" | "signal":
                value = f"answer {self._name}"
            case _:
                return
        effect = wait.metadata.get("effect")
        call = wait.metadata.get("call_id") or (effect[2] if effect else None)
        facts: Note = {"deed": "answer", "session": session, "wait": wait.wait_id, "kind": wait.kind, "call": call}
        await self._performer.do(facts | {"value": value, "go_on": dice.random() < 0.5}, cut=_cut(dice))

    async def ask(self, dice: random.Random) -> None:
        """Look at things; whatever is seen is not judged here."""
        session = await self._any_session(dice)
        if session is not None:
            await self._performer.do({"deed": "look", "session": session, "what": dice.randint(0, 5)}, cut=_cut(dice))

    async def stop(self, dice: random.Random) -> None:
        """Ask some run to stop."""
        kind = dice.choice(("interrupt", "interrupt", "abort"))
        await self._performer.do(
            {"deed": "stop", "session": await self._any_session(dice), "kind": kind}, cut=_cut(dice)
        )

    async def resume(self, dice: random.Random) -> None:
        """Go on with an interrupted or failed run."""
        await self._performer.do({"deed": "resume", "session": dice.choice(CAST).session}, cut=_cut(dice))

    async def give_up(self, dice: random.Random) -> None:
        """Give up everything a session waits for."""
        await self._performer.do({"deed": "cancel_waits", "session": dice.choice(CAST).session}, cut=_cut(dice))

    async def cancel(self, dice: random.Random) -> None:
        """Take queued input back."""
        session = dice.choice(CAST).session
        queued = await self._looked(self._store.inbox.list(session), ())
        if queued:
            await self._performer.do(
                {"deed": "cancel", "session": session, "input": queued[-1].input_id}, cut=_cut(dice)
            )

    async def fork(self, dice: random.Random) -> None:
        """Fork a session, now or after a run, perhaps with a first message."""
        role = dice.choice(CAST)
        self._said += 1
        target = f"fork.{self._name}.{self._said}"
        runs = await self._looked(self._runtime.session(role.session).runs(limit=5), [])
        at = dice.choice(runs).run_id if runs and dice.random() < 0.5 else None
        facts: Note = {"deed": "fork", "session": role.session, "target": target, "point": at, "repeats": True}
        if dice.random() < 0.4:
            facts["text"] = f"{target} {_plan(role.program, dice)}".strip()
        await self._performer.repeat(facts, dice)

    async def rewind(self, dice: random.Random) -> None:
        """Take a wild session back to before one of its last runs."""
        role = dice.choice([role for role in CAST if role.nature == WILD])
        runs = await self._looked(self._runtime.session(role.session).runs(limit=4), [])
        if runs:
            facts: Note = {"deed": "rewind", "session": role.session, "to": dice.choice(runs).run_id}
            await self._performer.do(facts, cut=_cut(dice))

    async def clear(self, dice: random.Random) -> None:
        """Clear a wild session."""
        role = dice.choice([role for role in CAST if role.nature == WILD])
        await self._performer.do({"deed": "clear", "session": role.session}, cut=_cut(dice))

    async def delete(self, dice: random.Random) -> None:
        """Delete a mortal session, a fork or a child; what is cut off is repeated until it is done."""
        session = await self._any_session(dice)
        role = BY_SESSION.get(session or "")
        if session is None or (role is not None and role.nature != MORTAL):
            session = dice.choice([role.session for role in CAST if role.nature == MORTAL])
        facts: Note = {"deed": "delete", "session": session, "cascade": dice.random() < 0.6, "repeats": True}
        await self._performer.repeat(facts, dice)

    async def create(self, dice: random.Random) -> None:
        """Make a mortal session again, or one that expires soon, and say something to it."""
        role = dice.choice([role for role in CAST if role.nature == MORTAL])
        facts: Note = {"deed": "create", "session": role.session, "program": role.program, "expires": None}
        if dice.random() < 0.3:
            self._said += 1
            facts["session"], facts["expires"] = f"brief.{self._name}.{self._said}", dice.uniform(0.5, 3)
        await self._performer.do(facts, cut=_cut(dice))
        await self._performer.repeat(self._message(role, dice, facts["session"]), dice)

    async def change(self, dice: random.Random) -> None:
        """Change what a session is besides its conversation."""
        role = dice.choice(CAST)
        await self._performer.do(
            {"deed": "action", "session": role.session, "what": dice.randint(0, 1)}, cut=_cut(dice)
        )

    async def close(self, dice: random.Random) -> None:
        """Close a session that is not steady for a moment."""
        role = dice.choice([role for role in CAST if role.nature in (WILD, MORTAL)])
        await self._performer.do({"deed": "close", "session": role.session, "what": dice.randint(0, 1)}, cut=_cut(dice))
        await asyncio.sleep(0.1)
        await self._performer.repeat({"deed": "reopen", "session": role.session, "repeats": True}, dice)

    async def command(self, dice: random.Random) -> None:
        """Queue an action."""
        self._said += 1
        facts: Note = {"deed": "command", "session": dice.choice(CAST).session, "key": f"{self._name}.{self._said}"}
        await self._performer.do(facts, cut=_cut(dice))

    async def settle(self, dice: random.Random) -> None:
        """Say what became of a call in doubt."""
        session = await self._any_session(dice)
        found = () if session is None else await self._looked(self._runtime.session(session).effects_in_doubt(), ())
        if not found:
            return
        effect = dice.choice(found)
        call = effect.call_id or effect.effect_key
        await self._performer.do({"deed": "settle", "session": session, "call": call}, cut=_cut(dice))

    async def upkeep(self, dice: random.Random) -> None:
        """Keep house beside everything else."""
        await self._performer.do({"deed": "upkeep", "session": None, "what": dice.randint(0, 3)}, cut=_cut(dice))

    async def _any_session(self, dice: random.Random) -> str | None:
        page = await self._looked(self._runtime.list(limit=80), ())
        sessions = [each.key.session_id for each in page]
        return dice.choice(sessions) if sessions else None

    async def _looked(self, look: Awaitable[Any], otherwise: Any) -> Any:
        try:
            async with asyncio.timeout(_GLANCE):
                return await look
        except (TenutoError, TimeoutError):
            await asyncio.sleep(0.01)
            return otherwise


def _may_be_queued(facts: Note, error: TenutoError) -> bool:
    """Tell whether a message may have been queued before its session was closed to it."""
    return isinstance(error, StatusRefused) and facts.get("when_busy") in ("queue", "interrupt", "rollback")


def _plan(program: str, dice: random.Random) -> str:
    """Return what a message asks a program for."""
    if program == "agent":
        steps = dice.choices((0, 1, 2), (2, 5, 2))[0]
        return " ".join("+".join(dice.sample(TOOLS, dice.choice((1, 2, 3)))) for _ in range(steps))
    if program == "clerk":
        return dice.choice(("", "sleep", "wait", "sleep wait"))
    return ""


def _cut(dice: random.Random) -> float | None:
    """Return after how long a call is cut off; most are not."""
    return dice.choice((0.002, 0.01, 0.03, 0.1)) if dice.random() < 0.12 else None


def unanswered(notes: list[Note]) -> list[Note]:
    """Return what is to be done again: what was meant to be done until it is known, and is not."""
    heard = {(note["who"], note["n"]) for note in notes if note["note"] in (ACK, REFUSED)}
    open_: dict[str, Note] = {}
    for note in notes:
        if note["note"] != INTENT or not note.get("repeats"):
            continue
        facts = {name: value for name, value in note.items() if name not in ("at", "who", "note", "n")}
        known = facts.get("key") or facts.get("target") or facts["session"]
        if (note["who"], note["n"]) in heard:
            open_.pop(known, None)
        else:
            open_.setdefault(known, facts)
    return list(open_.values())
