"""Turns, actions, rewinds and forks in any order, by two runtimes: always what plain lists would give."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.runtime.change.action import ClearSession, ForkSession, RewindSession
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.session.session_view import SessionView
from tenuto.store.open import memory_store
from tests.runtime.runtimes import opened


@program
async def noting(turn: Turn) -> None:
    """Answer, note it, and fail if told to; a step that was written stays."""
    text = turn.text
    turn.update(lambda state: {"count": state.get("count", 0) + 1})
    turn.add("notes", text)
    turn.append({"role": "assistant", "content": f"re: {text}"})
    if text.startswith("save"):
        await turn.save()
        turn.state.update(lost=True)
    if not text.startswith("say"):
        raise ValueError("as told")


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the conversation from some place on."""

    at: int
    text: str

    async def apply(self, session: SessionView) -> SessionView:
        kept = session.messages[: self.at]
        return session.replaced("messages", [*kept, {"role": "user", "content": self.text}])


@dataclass(frozen=True, slots=True)
class Add:
    text: str

    async def apply(self, session: SessionView) -> SessionView:
        return session.appended("messages", {"role": "user", "content": self.text}).with_fields(last=self.text)


@dataclass(slots=True)
class Plain:
    """The session as plain lists, and as it was before and after each run."""

    messages: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    document: dict[str, Any] = field(default_factory=dict)
    before: dict[str, "Plain"] = field(default_factory=dict)
    after: dict[str, "Plain"] = field(default_factory=dict)

    def copied(self) -> "Plain":
        return Plain(list(self.messages), list(self.notes), dict(self.document))

    def put_back(self, other: "Plain") -> None:
        self.messages, self.notes, self.document = list(other.messages), list(other.notes), dict(other.document)

    def turned(self, text: str) -> None:
        """Do what `noting` does, as far as it is kept."""
        self.messages.append(text)
        if not text.startswith("fail"):
            self.messages.append(f"re: {text}")
            self.notes.append(text)
            self.document["count"] = self.document.get("count", 0) + 1


def as_plain(session: SessionView) -> tuple[Any, Any, Any]:
    messages: Any = session.messages
    return [each["content"] for each in messages], list(session.logs.get("notes", ())), dict(session.document)


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "save", "fail", "add", "edit", "clear", "rewind", "fork"]),
        st.integers(0, 5),
        st.booleans(),
    ),
    min_size=2,
    max_size=12,
)


async def walked(steps: list[tuple[str, int, bool]]) -> None:
    async with memory_store() as store:
        runtimes = [await opened(store, [noting]) for _ in range(2)]
        await runtimes[0].create("noting", session_id="s")
        plain, runs = Plain(), list[str]()
        for number, (word, choice, other) in enumerate(steps):
            runtime, text = runtimes[other], f"{word} {number}"
            match word:
                case "add":
                    await runtime.execute("s", Add(text))
                    plain.messages.append(text)
                    plain.document["last"] = text
                case "edit":
                    await runtime.execute("s", Edit(choice, text))
                    plain.messages[choice:] = [text]
                case "clear":
                    await runtime.execute("s", ClearSession())
                    plain.messages, plain.notes = [], []
                case "rewind" if runs:
                    run_id = runs[choice % len(runs)]
                    await runtime.execute("s", RewindSession(run_id))
                    plain.put_back(plain.before[run_id])
                case "fork" if runs:
                    run_id = runs[choice % len(runs)]
                    fork = await runtime.execute("s", ForkSession(at=run_id))
                    then = plain.after[run_id]
                    assert as_plain(await fork.get()) == (then.messages, then.notes, then.document)
                case "say" | "save" | "fail":
                    before = plain.copied()
                    outcome = await runtime.send("s", text)
                    assert outcome.status == ("completed" if word == "say" else "failed")
                    plain.turned(text)
                    runs.append(str(outcome.run_id))
                    plain.before[runs[-1]], plain.after[runs[-1]] = before, plain.copied()
            found = as_plain(await runtime.get("s"))
            assert found == (plain.messages, plain.notes, plain.document)


@settings(max_examples=60, deadline=None)
@given(_STEPS)
def test_a_session_is_what_plain_lists_would_be_whatever_is_done_to_it(steps: list[tuple[str, int, bool]]) -> None:
    asyncio.run(walked(steps))
