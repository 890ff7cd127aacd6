"""Growth: one conversation of 500 turns, two messages each.

What does it take on disk, and what does a late turn cost?
"""

import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Annotated, Any

from demos.history import Said
from demos.processes import call
from demos.show import Claim, Demonstration, Row, arguments, doing, present
from demos.texts import SIZE, texts
from tenuto import open_store
from tenuto.graph import END, GraphBuilder, SessionState, State, append
from tenuto.model.session import SessionKey

TURNS = 500
EARLY = 10
NEIGHBOURS = 10
SESSION = "customer-42"


class Chat(State):
    messages: Annotated[list[Said], append] = []


class Memory(SessionState):
    messages: list[Said]


async def converse(folder: str, turns: int, checkpoints: bool = False) -> dict[str, Any]:
    """Return the seconds every turn took, on the clock and of the processor, and the messages kept at the end."""
    text = texts()

    async def reply(_: Chat) -> dict[str, list[Said]]:
        return {"messages": [{"role": "assistant", "text": next(text)}]}

    seconds, processor = [], []
    async with open_store(f"sqlite:///{folder}/tenuto.db") as store:
        builder = GraphBuilder(Chat).add_node("reply", reply).add_edge("reply", END).set_entry("reply")
        builder.with_session_store(store, state=Memory, concurrency="last_write_wins")
        if checkpoints:
            builder.with_checkpointer(store)
        graph = builder.compile()
        for _ in range(turns):
            question: Said = {"role": "user", "text": next(text)}
            begun, worked = perf_counter(), process_time()
            await graph.invoke({"messages": [question]}, session_id=SESSION)
            seconds.append(perf_counter() - begun)
            processor.append(process_time() - worked)
        record = await store.load(SessionKey(SESSION))
    kept = len(record.state["messages"]) if record else 0
    return {"seconds": seconds, "processor": processor, "messages": kept}


def figures(result: dict[str, Any], place: Path) -> dict[str, float]:
    """Return the bytes of all files left after closing, and medians around an early turn and before the last."""
    early, late = slice(EARLY - NEIGHBOURS // 2, EARLY + NEIGHBOURS // 2), slice(-NEIGHBOURS, None)

    def milliseconds(clock: str, turns: slice) -> float:
        return round(1000 * float(median(result[clock][turns])), 3)

    return {
        "messages": result["messages"],
        "bytes": size(place),
        "early_ms": milliseconds("seconds", early),
        "late_ms": milliseconds("seconds", late),
        "early_processor_ms": milliseconds("processor", early),
        "late_processor_ms": milliseconds("processor", late),
        "all_seconds": round(sum(result["seconds"]), 2),
    }


def size(place: Path) -> int:
    return sum(file.stat().st_size for file in place.iterdir())


def growth(folder: Path, turns: int) -> Demonstration:
    def run(target: str, name: str, **options: Any) -> dict[str, float]:
        place = folder / name
        place.mkdir()
        with doing(f"growth: {name}, {turns} turns"):
            return figures(call(target, folder=str(place), turns=turns, **options), place)

    ours, theirs = "demos.growth:converse", "demos.peer.growth:converse"
    tenuto = {"session": run(ours, "session"), "checkpoints": run(ours, "checkpoints", checkpoints=True)}
    langgraph = {
        "plain": run(theirs, "langgraph"),
        "exit": run(theirs, "langgraph_exit", durability="exit"),
        "delta": run(theirs, "langgraph_delta", delta=True),
    }
    (folder / "empty").mkdir()
    call(ours, folder=str(folder / "empty"), turns=0)
    return Demonstration(
        name="growth",
        title=f"{turns} turns of two messages of {SIZE} bytes on one conversation",
        rows=rows(tenuto, langgraph, turns),
        claims=claims(tenuto, turns, size(folder / "empty")),
        tenuto=tenuto,
        langgraph=langgraph,
    )


def rows(tenuto: dict[str, Any], langgraph: dict[str, Any], turns: int) -> tuple[Row, ...]:
    def row(what: str, shown: Any) -> Row:
        return Row(
            what=what,
            tenuto=f"{shown(tenuto['session'])}\n{shown(tenuto['checkpoints'])} with a checkpoint after every node",
            langgraph=(
                f"{shown(langgraph['plain'])}\n{shown(langgraph['exit'])} with durability='exit'\n"
                f"{shown(langgraph['delta'])} with DeltaChannel (beta)"
            ),
        )

    return (
        row("bytes on disk, after closing", lambda side: f"{side['bytes'] / 1e6:.2f} MB"),
        row(f"a turn around turn {EARLY}", lambda side: f"{side['early_ms']:.2f} ms"),
        row(f"a turn before turn {turns}", lambda side: f"{side['late_ms']:.2f} ms"),
        row("all turns", lambda side: f"{side['all_seconds']:.1f} s"),
    )


def claims(tenuto: dict[str, Any], turns: int, empty: int) -> tuple[Claim, ...]:
    said = turns * 2 * SIZE
    return (
        Claim(
            text=f"all {turns * 2} messages are there",
            holds=all(side["messages"] == turns * 2 for side in tenuto.values()),
        ),
        Claim(
            text="the file grows with what is said: less than four bytes for each byte of text, checkpoints or not",
            holds=all(side["bytes"] - empty < 4 * said for side in tenuto.values()),
        ),
        # On the processor's clock: what else the machine does in between is nobody's growth.
        Claim(
            text="a late turn takes less than twice the processor time of an early one",
            holds=all(side["late_processor_ms"] < 2 * side["early_processor_ms"] for side in tenuto.values()),
        ),
    )


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--turns", type=int, default=TURNS, help=f"how many turns, {2 * NEIGHBOURS} or more")
    options = parser.parse_args()
    if options.turns < 2 * NEIGHBOURS:
        parser.error(f"--turns must be {2 * NEIGHBOURS} or more, or early and late turns would be the same ones")
    with TemporaryDirectory(prefix="tenuto-growth-") as folder:
        return present(growth(Path(folder), options.turns), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
