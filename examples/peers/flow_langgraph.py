"""The same as apps/flow.py, with LangGraph: `python flow_langgraph.py start | list | answer ID yes|no`."""

import operator
import sys
from typing import Annotated, Literal, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Overwrite, Send, interrupt


class Report(TypedDict):
    topics: list[str]
    notes: Annotated[list[str], operator.add]
    rounds: int
    published: Annotated[list[str], operator.add]


class Topic(TypedDict):
    topic: str


def plan(state: Report) -> dict[str, object]:
    return {"topics": [f"topic {state['rounds']}.{n}" for n in range(3)], "rounds": state["rounds"] + 1}


def side_by_side(state: Report) -> list[Send]:
    return [Send("research", {"topic": topic}) for topic in state["topics"]]


def research(state: Topic) -> dict[str, list[str]]:
    return {"notes": [f"note on {state['topic']}"]}


def enough(state: Report) -> Literal["gate", "plan"]:
    return "gate" if len(state["notes"]) >= 6 else "plan"


def gate(state: Report) -> Command[Literal["publish", "__end__"]]:
    return Command(goto="publish" if interrupt({"notes": len(state["notes"])}) else END)


def publish(state: Report) -> dict[str, list[str]]:
    return {"published": [f"report of {len(state['notes'])} notes"]}


builder = (
    StateGraph(Report)
    .add_node("plan", plan)
    .add_node("research", research)
    .add_node("check", lambda _: {})
    .add_node("gate", gate)
    .add_node("publish", publish)
    .add_edge(START, "plan")
    .add_conditional_edges("plan", side_by_side, ["research"])
    .add_edge("research", "check")
    .add_conditional_edges("check", enough)
    .add_edge("publish", END)
)


def main(command: str, *words: str) -> None:
    with SqliteSaver.from_conn_string("flow.db") as saver:
        graph = builder.compile(checkpointer=saver)
        threads = {each.config["configurable"]["thread_id"] for each in saver.list(None)}
        states = [graph.get_state({"configurable": {"thread_id": thread}}) for thread in threads]
        waits = {each.id: (each.value, state.config) for state in states for each in state.interrupts}
        config = {"configurable": {"thread_id": "weekly"}, "max_concurrency": 2}
        if command == "start":
            # A thread keeps all of its state, so a new run has to clear what belongs to the last one.
            graph.invoke({"topics": [], "notes": Overwrite([]), "rounds": 0, "published": []}, config)
            print("suspended" if graph.get_state(config).interrupts else "completed")
        elif command == "list":
            for interrupt_id, (value, _) in waits.items():
                print(interrupt_id, value["notes"])
        elif words[0] not in waits:  # the graph would run again without a word
            print("answered before")
        else:
            config["configurable"]["thread_id"] = waits[words[0]][1]["configurable"]["thread_id"]
            print(graph.invoke(Command(resume={words[0]: words[1] == "yes"}), config)["published"])


if __name__ == "__main__":
    main(*sys.argv[1:])
