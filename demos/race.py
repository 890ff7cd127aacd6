"""Race: five messages sent at once on one session.

How many replies does the conversation keep, and who learns that the others were lost?
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from demos.history import Said
from demos.processes import call
from demos.show import Claim, Demonstration, Row, arguments, doing, present, yes
from tenuto import open_store
from tenuto.errors import VersionConflict
from tenuto.graph import END, GraphBuilder, SessionState, State, append
from tenuto.model.session import SessionKey
from tenuto.words import Concurrency

QUESTIONS = [f"question {number}" for number in range(1, 6)]
THINKING = 0.02
SESSION = "customer-42"


class Chat(State):
    messages: Annotated[list[Said], append] = []


class Memory(SessionState):
    messages: list[Said]


async def send_at_once(
    folder: str, questions: list[str], think: float, concurrency: Concurrency, tries: int = 1
) -> dict[str, Any]:
    """Send all at once; a caller that gets a conflict tries again, up to `tries` times in all."""

    async def reply(state: Chat) -> dict[str, list[Said]]:
        await asyncio.sleep(think)
        return {"messages": [{"role": "assistant", "text": f"re: {state.messages[-1]['text']}"}]}

    told: list[str] = []
    async with open_store(f"sqlite:///{folder}/tenuto.db") as store:
        graph = (
            GraphBuilder(Chat)
            .add_node("reply", reply)
            .add_edge("reply", END)
            .set_entry("reply")
            .with_session_store(store, state=Memory, concurrency=concurrency)
            .compile()
        )

        async def send(question: str) -> None:
            for _ in range(tries):
                try:
                    await graph.invoke({"messages": [{"role": "user", "text": question}]}, session_id=SESSION)
                    return
                except VersionConflict as conflict:
                    told.append(conflict.category)

        await asyncio.gather(*map(send, questions))
        record = await store.load(SessionKey(SESSION))
    return {"history": record.state["messages"] if record else [], "told": told}


def judged(result: dict[str, Any]) -> dict[str, Any]:
    """Return the replies kept, the callers that got an error, and whether questions and replies are stored as sent."""
    history: Sequence[Said] = result["history"]
    said = [entry["text"] for entry in history]
    kept = [question for question in QUESTIONS if f"re: {question}" in said]
    paired = all(said[at + 1 : at + 2] == [f"re: {text}"] for at, text in enumerate(said) if text in QUESTIONS)
    whole = [text for question in QUESTIONS for text in (question, f"re: {question}")]
    return {"kept": len(kept), "told": len(result["told"]), "paired": paired, "in_order": said == whole}


def race(folder: Path) -> Demonstration:
    def run(target: str, name: str, **options: Any) -> dict[str, Any]:
        place = folder / name
        place.mkdir()
        with doing(f"race: {name}"):
            return judged(call(target, folder=str(place), questions=QUESTIONS, think=THINKING, **options))

    ours, theirs = "demos.race:send_at_once", "demos.peer.race:send_at_once"
    tenuto = {
        "exclusive": run(ours, "exclusive", concurrency="exclusive"),
        "last_write_wins": run(ours, "last_write_wins", concurrency="last_write_wins"),
        "optimistic": run(ours, "optimistic", concurrency="optimistic"),
        "optimistic_tried_again": run(
            ours, "optimistic_tried_again", concurrency="optimistic", tries=len(QUESTIONS) + 1
        ),
    }
    langgraph = {
        "plain": run(theirs, "langgraph", lock=False),
        "own_lock": run(theirs, "langgraph_own_lock", lock=True),
    }
    return Demonstration(
        name="race",
        title=f"{len(QUESTIONS)} messages at once on one session",
        rows=rows(tenuto, langgraph),
        claims=claims(tenuto),
        tenuto=tenuto,
        langgraph=langgraph,
    )


def rows(tenuto: dict[str, Any], langgraph: dict[str, Any]) -> tuple[Row, ...]:
    exclusive, plain = tenuto["exclusive"], langgraph["plain"]
    wins, cautious, again = (tenuto[mode] for mode in ("last_write_wins", "optimistic", "optimistic_tried_again"))
    return (
        Row(what="replies kept", tenuto=f"{kept(exclusive)} (exclusive)", langgraph=kept(plain)),
        Row(
            what="each after its question, in the order sent",
            tenuto=yes(exclusive["in_order"]),
            langgraph=yes(plain["in_order"]),
        ),
        Row(what="callers that got an error for a lost one", tenuto=told(exclusive), langgraph=told(plain)),
        Row(
            what="other ways",
            tenuto=(
                f"last_write_wins: {kept(wins)}, as its name says\n"
                f"optimistic: {kept(cautious)}, {told(cautious)} refused;\n"
                f"  {kept(again)} once these tried again"
            ),
            langgraph=f"a lock of one's own around it, in one process: {kept(langgraph['own_lock'])}",
        ),
    )


def claims(tenuto: dict[str, Any]) -> tuple[Claim, ...]:
    exclusive, wins, cautious = tenuto["exclusive"], tenuto["last_write_wins"], tenuto["optimistic"]
    again = tenuto["optimistic_tried_again"]
    everyone = len(QUESTIONS)
    return (
        Claim(
            text=f"exclusive keeps all {everyone} replies, each after its question, in the order they were sent",
            holds=exclusive == {"kept": everyone, "told": 0, "paired": True, "in_order": True},
        ),
        Claim(
            text="last_write_wins keeps whole turns only, the last one among them",
            holds=1 <= wins["kept"] <= everyone and wins["paired"] and wins["told"] == 0,
        ),
        Claim(
            text="optimistic refuses every caller whose turn was not kept",
            holds=cautious["kept"] + cautious["told"] == everyone and cautious["paired"],
        ),
        Claim(
            text="optimistic keeps all of them once those callers try again",
            holds=again["kept"] == everyone and again["paired"],
        ),
    )


def kept(figures: dict[str, Any]) -> str:
    return f"{figures['kept']} of {len(QUESTIONS)}"


def told(figures: dict[str, Any]) -> str:
    lost = len(QUESTIONS) - figures["kept"]
    return f"{figures['told']} of {lost}" if lost else "none was lost"


def main() -> int:
    options = arguments(__doc__).parse_args()
    with TemporaryDirectory(prefix="tenuto-race-") as folder:
        return present(race(Path(folder)), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
