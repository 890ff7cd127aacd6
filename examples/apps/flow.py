"""Research in rounds until there is enough; then a person decides: `python flow.py start | list | answer ID yes|no`."""

import asyncio
import sys
from typing import Annotated, Literal, NoReturn

from tenuto import open_store
from tenuto.errors import AlreadyAnswered
from tenuto.graph import END, End, GraphBuilder, SessionState, SignalDescriptor, State, append, suspend


class Report(State):
    topics: list[str] = []
    notes: Annotated[list[str], append] = []
    rounds: int = 0
    approved: bool | None = None
    published: Annotated[list[str], append] = []


class Kept(SessionState):
    published: list[str]


def plan(state: Report) -> dict[str, object]:
    return {"topics": [f"topic {state.rounds}.{n}" for n in range(3)], "rounds": state.rounds + 1}


def research(state: Report, topic: str) -> str:
    return f"note on {topic}"


def enough(state: Report) -> Literal["gate", "plan"]:
    return "gate" if len(state.notes) >= 6 else "plan"


async def gate(state: Report) -> NoReturn:
    await suspend(SignalDescriptor("publish?", {"notes": len(state.notes)}))


def decided(state: Report) -> Literal["publish"] | End:
    return "publish" if state.approved else END


def publish(state: Report) -> dict[str, list[str]]:
    return {"published": [f"report of {len(state.notes)} notes"]}


graph = (
    GraphBuilder(Report, "report")
    .add_node("plan", plan)
    .add_fan_out_node("research", research, items_field="topics", target_field="notes", concurrency=2)
    .add_node("gate", gate)
    .add_node("publish", publish)
    .add_edge("plan", "research")
    .add_conditional_edge("research", enough)
    .add_conditional_edge("gate", decided)
    .add_edge("publish", END)
    .set_entry("plan")
    .with_session_state(Kept)
    .compile()
)


async def main(command: str, *words: str) -> None:
    async with open_store("sqlite:///flow.db") as store:
        report = graph.bind(store)
        if command == "start":
            print((await report.run(session_id="weekly")).status)
        elif command == "list":
            for wait in await report.waiting():
                print(wait.wait_id, wait.metadata["notes"])
        else:
            try:
                print((await report.resume(words[0], {"approved": words[1] == "yes"})).result().published)
            except AlreadyAnswered:
                print("answered before")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
