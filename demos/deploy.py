"""Deploy: sessions and a pause written by the first version of a graph, opened by the third in another process."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, ClassVar

from demos.customers import CUSTOMERS, PAUSED, expected, first_reply, third_reply
from demos.database import database
from demos.history import Said, told
from demos.processes import call
from demos.show import Claim, Demonstration, Row, arguments, doing, present
from tenuto import Store, TenutoError
from tenuto.graph import END, GraphBuilder, SessionState, SignalDescriptor, State, append, suspend
from tenuto.model.session import SessionKey

QUESTION = "what did I order?"


class FirstShop(State):
    schema_version: ClassVar[str] = "1"
    messages: Annotated[list[Said], append] = []
    customer: str = ""
    orders: str = ""


class FirstMemory(SessionState):
    schema_version: ClassVar[str] = "1"
    messages: list[Said]
    customer: str
    orders: str


class ThirdShop(State):
    schema_version: ClassVar[str] = "3"
    messages: Annotated[list[Said], append] = []
    first_name: str = ""
    last_name: str = ""
    orders: list[int] = []


class ThirdMemory(SessionState):
    schema_version: ClassVar[str] = "3"
    messages: list[Said]
    first_name: str
    last_name: str
    orders: list[int]


def two_names(state: dict[str, Any]) -> dict[str, Any]:
    first_name, last_name = state.pop("customer").split(" ")
    return {**state, "first_name": first_name, "last_name": last_name}


def orders_as_numbers(state: dict[str, Any]) -> dict[str, Any]:
    return {**state, "orders": [int(number) for number in state["orders"].split(",")]}


MIGRATIONS = (("1", "2", two_names), ("2", "3", orders_as_numbers))


async def ask(state: Any) -> dict[str, Any]:
    if "refund" in state.messages[-1]["text"]:
        await suspend(SignalDescriptor("refund-approval"))
    return {}


def built(builder: GraphBuilder[Any], reply: Any) -> GraphBuilder[Any]:
    return (
        builder.add_node("ask", ask)
        .add_node("reply", reply)
        .add_edge("ask", "reply")
        .add_edge("reply", END)
        .set_entry("ask")
    )


def first(store: Store) -> Any:
    async def reply(state: FirstShop) -> dict[str, list[Said]]:
        return {"messages": [{"role": "assistant", "text": f"{state.customer} ordered {state.orders}."}]}

    return built(GraphBuilder(FirstShop, name="shop"), reply).with_session_store(store, state=FirstMemory).compile()


def third(store: Store, *, migrations: bool) -> Any:
    async def reply(state: ThirdShop) -> dict[str, list[Said]]:
        text = f"{state.last_name}, {state.first_name} has {len(state.orders)} orders."
        return {"messages": [{"role": "assistant", "text": text}]}

    builder = built(GraphBuilder(ThirdShop, name="shop"), reply).with_session_store(store, state=ThirdMemory)
    for migration in MIGRATIONS if migrations else ():
        builder.with_session_migration(*migration).with_state_migration(*migration)
    return builder.compile()


def user(text: str) -> list[Said]:
    return [{"role": "user", "text": text}]


async def write_first(folder: str) -> str:
    """Write a session for every customer, pause one more at its gate, and return what its answer needs."""
    async with database(folder) as store:
        graph = first(store)
        for session_id, fields in CUSTOMERS.items():
            await graph.invoke({"messages": user("hello"), **fields}, session_id=session_id)
        session_id, fields = PAUSED
        paused = await graph.run({"messages": user("refund it"), **fields}, session_id=session_id)
        assert paused.suspended
        return str(paused.invocation_id)


async def open_third(folder: str, migrations: bool = True) -> dict[str, Any]:
    """Send every customer's session one more message under the third version."""
    async with database(folder) as store:
        graph = third(store, migrations=migrations)
        return {name: await outcome(store, graph, name, {"messages": user(QUESTION)}) for name in CUSTOMERS}


async def open_first(folder: str) -> dict[str, Any]:
    """Do the same under the first version again, as after a deployment taken back."""
    async with database(folder) as store:
        graph = first(store)
        return {name: await outcome(store, graph, name, {"messages": user(QUESTION)}) for name in CUSTOMERS}


async def resume_third(folder: str, resume: str) -> dict[str, Any]:
    """Answer the pause under the third version."""
    async with database(folder) as store:
        graph = third(store, migrations=True)
        return await outcome(store, graph, PAUSED[0], resume_invocation=resume, signal_payload={})


async def outcome(store: Store, graph: Any, name: str, given: Any = None, **options: Any) -> dict[str, Any]:
    """Return what came of a turn: its error if there was one, and what the session then holds."""
    error = ""
    named = options or {"session_id": name}
    try:
        await graph.invoke(given, **named)
    except TenutoError as raised:
        error = raised.category
    record = await store.load(SessionKey(name))
    fields = dict(record.state) if record else {}
    return {"error": error, "history": fields.pop("messages", []), "fields": fields}


def story(side: str, folder: Path, unprepared: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """Deploy the third version with all it has to bring old state along; and, on a copy, with nothing, and go back."""
    folder.mkdir()
    paused = call(f"{side}:write_first", folder=str(folder), **options)
    copied = str(shutil.copytree(folder, folder.with_name(f"{folder.name}_copy")))
    return {
        "deployed": {
            "sessions": call(f"{side}:open_third", folder=str(folder), **options),
            "paused": call(f"{side}:resume_third", folder=str(folder), resume=paused, **options),
        },
        "taken_back": {
            "tried": call(f"{side}:open_third", folder=copied, **unprepared, **options),
            "back": call(f"{side}:open_first", folder=copied, **options),
        },
    }


def deploy(folder: Path) -> Demonstration:
    ours, theirs = "demos.deploy", "demos.peer.deploy"
    with doing("deploy: Tenuto"):
        tenuto = story(ours, folder / "tenuto", {"migrations": False})
    langgraph: dict[str, Any] = {}
    for style in ("TypedDict", "Pydantic", "add-then-remove"):
        with doing(f"deploy: LangGraph, {style}"):
            langgraph[style] = story(theirs, folder / style, {}, style=style)
    return Demonstration(
        name="deploy",
        title="Sessions and a pause of version 1, opened by version 3: one name became two, text became numbers",
        rows=rows(tenuto, langgraph),
        claims=claims(tenuto),
        tenuto=tenuto,
        langgraph=langgraph,
    )


def answered(found: Mapping[str, Any], reply: str) -> bool:
    """Return whether the customer got the right answer, and every earlier message got one."""
    roles = [said["role"] for said in found["history"]]
    return bool(not found["error"] and roles == ["user", "assistant"] * (len(roles) // 2) and said_last(found) == reply)


def said_last(found: Mapping[str, Any]) -> str:
    return str(found["history"][-1]["text"])


def rows(tenuto: dict[str, Any], langgraph: dict[str, Any]) -> tuple[Row, ...]:
    everyone = len(CUSTOMERS)

    def per_style(shown: Any) -> str:
        return "\n".join(f"{style}: {shown(side)}" for style, side in langgraph.items())

    def opened(side: dict[str, Any]) -> str:
        sessions = side["deployed"]["sessions"]
        right = sum(answered(sessions[name], third_reply(fields)) for name, fields in CUSTOMERS.items())
        return f"{right} of {everyone}{errors(sessions.values())}"

    def paused(side: dict[str, Any]) -> str:
        found = side["deployed"]["paused"]
        right = "finished" if answered(found, third_reply(PAUSED[1])) else "not finished"
        return f"{right}{errors([found])}"

    def without(side: dict[str, Any]) -> str:
        return errors(side["taken_back"]["tried"].values()).removeprefix(", ") or "no error"

    def back(side: dict[str, Any]) -> str:
        sessions = side["taken_back"]["back"]
        lost = any("customer" not in found["fields"] for found in sessions.values())
        kept = any(found.get("name_in_an_older_checkpoint") for found in sessions.values())
        older = "\n  (older checkpoints still have the name)" if lost and kept else ""
        right = sum(answered(sessions[name], first_reply(fields)) for name, fields in CUSTOMERS.items())
        return f"{right} of {everyone}{errors(sessions.values())}{older}"

    def example(side: dict[str, Any]) -> str:
        return told(side["taken_back"]["back"]["customer-1"]["history"])

    return (
        Row(what="version 1 sessions answered by version 3", tenuto=opened(tenuto), langgraph=per_style(opened)),
        Row(what="version 1 pause answered under version 3", tenuto=paused(tenuto), langgraph=per_style(paused)),
        Row(
            what="deployed without a migration",
            tenuto=without(tenuto),
            langgraph=f"{per_style(without)}\n(the same: it has none to give)",
        ),
        Row(what="  then back to version 1: sessions answered", tenuto=back(tenuto), langgraph=per_style(back)),
        Row(what="  the history of customer-1 then", tenuto=example(tenuto), langgraph=per_style(example)),
    )


def errors(found: Any) -> str:
    """Return the different errors among the outcomes, each once."""
    different = sorted({outcome["error"] for outcome in found if outcome["error"]})
    return f", {'; '.join(different)}" if different else ""


def claims(tenuto: dict[str, Any]) -> tuple[Claim, ...]:
    deployed, back = tenuto["deployed"], tenuto["taken_back"]
    sessions, paused = deployed["sessions"], deployed["paused"]
    return (
        Claim(
            text=f"all {len(CUSTOMERS)} sessions of version 1 are answered by version 3, through two migrations",
            holds=all(
                answered(sessions[name], third_reply(fields)) and sessions[name]["fields"] == expected(fields)
                for name, fields in CUSTOMERS.items()
            ),
        ),
        Claim(
            text="the pause of version 1 is answered and finished under version 3, its fields migrated",
            holds=answered(paused, third_reply(PAUSED[1])) and paused["fields"] == expected(PAUSED[1]),
        ),
        Claim(
            text="without a migration every session is refused as session_state_migration_missing",
            holds={found["error"] for found in back["tried"].values()} == {"session_state_migration_missing"},
        ),
        Claim(
            text="a refused session is unchanged: version 1 can still use it",
            holds=all(
                answered(back["back"][name], first_reply(fields)) and back["back"][name]["fields"] == fields
                for name, fields in CUSTOMERS.items()
            ),
        ),
    )


def main() -> int:
    options = arguments(__doc__).parse_args()
    with TemporaryDirectory(prefix="tenuto-deploy-") as folder:
        return present(deploy(Path(folder)), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
