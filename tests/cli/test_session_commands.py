"""`tenuto session`: list, show, answer and stop, on a real file and a real server."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tenuto import SessionRuntime, Turn, program
from tests.cli.commands import Place, make, refused, reported, tenuto

pytestmark = pytest.mark.usefixtures("folder")


@program
async def desk(turn: Turn) -> None:
    raise AssertionError("no test sends it anything")


@program
async def clerk(turn: Turn) -> None:
    said = await turn.wait("refund", kind="approval", metadata={"amount": 49})
    turn.append({"role": "assistant", "content": "Paid." if said else "Not paid."}, once="reply")


async def suspended(place: Place, tenant: str = "") -> tuple[str, str]:
    """Leave two sessions of a tenant, one of which waits; return the wait and its run."""
    async with SessionRuntime(place.open(), [clerk, desk]) as runtime:
        ours = runtime.for_tenant(tenant)
        await ours.create(desk, session_id="idle", title="Nothing yet")
        session = await ours.create(clerk, session_id="refund-7", metadata={"shop": tenant or "north"})
        outcome = await session.send(f"refund order 7 {tenant}".strip())
        (wait,) = outcome.waits
        assert outcome.run_id is not None
        return wait.wait_id, outcome.run_id


async def drained(place: Place, tenant: str = "") -> list[Any]:
    async with SessionRuntime(place.open(), [clerk]) as runtime:
        await runtime.drain()
        messages: Any = (await runtime.for_tenant(tenant).get("refund-7")).messages
        return [each["content"] for each in messages]


@pytest.fixture
def listed(place: Place) -> tuple[Place, str, str]:
    return place, *asyncio.run(suspended(place))


def test_sessions_are_listed_and_shown(listed: tuple[Place, str, str]) -> None:
    place, _, run_id = listed
    page = reported("session", "list", *place.arguments)
    assert page["next"] is None
    assert [(each["session_id"], each["tenant"], each["program"], each["status"]) for each in page["sessions"]] == [
        ("refund-7", "", "clerk", "active"),
        ("idle", "", "desk", "active"),
    ]
    assert tenuto("session", "list", *place.arguments)[1].splitlines()[2].split() == [
        *("idle", "desk", "active", "1", "0", "Nothing", "yet")
    ]
    shown = reported("session", "show", "refund-7", *place.arguments)
    assert (shown["tenant"], shown["program"], shown["metadata"]) == ("", "clerk@1", {"shop": "north"})
    assert shown["logs"] == {"messages": [{"role": "user", "content": "refund order 7"}]}
    assert [(run["run_id"], run["status"], run["waits_for"]) for run in shown["runs"]] == [
        (run_id, "suspended", ["approval"])
    ]
    printed = tenuto("session", "show", "refund-7", *place.arguments)[1]
    assert "  user: refund order 7\n" in printed
    assert run_id in printed


async def fill(place: Place) -> list[tuple[str, str]]:
    """Leave five sessions of two tenants, some under one id; return them, newest first."""
    made = [("s0", "blue"), ("s0", "green"), ("s1", "blue"), ("s1", "green"), ("s2", "blue")]
    async with SessionRuntime(place.open(), desk) as runtime:
        for session_id, tenant in made:
            await runtime.for_tenant(tenant).create(desk, session_id=session_id)
    return made[::-1]


def test_a_long_list_is_paged_through_each_session_once(place: Place) -> None:
    made = asyncio.run(fill(place))
    found: list[list[tuple[str, str]]] = []
    after: list[str] = []
    while True:
        page = reported("session", "list", *place.arguments, "--limit", "2", *after)
        found.append([(each["session_id"], each["tenant"]) for each in page["sessions"]])
        if page["next"] is None:
            break
        after = ["--after", page["next"]]
    assert found == [made[:2], made[2:4], made[4:]]
    one = reported("session", "list", *place.arguments, "--tenant", "blue", "--limit", "2")
    rest = reported("session", "list", *place.arguments, "--tenant", "blue", "--limit", "2", "--after", one["next"])
    assert [each["session_id"] for each in (*one["sessions"], *rest["sessions"])] == ["s2", "s1", "s0"]
    assert rest["next"] is None


def test_a_list_for_people_names_tenants_and_says_how_to_see_more(place: Place) -> None:
    made = asyncio.run(fill(place))
    found, more = [], ["--limit", "3"]
    for _ in range(2):
        first, *rows = tenuto("session", "list", *place.arguments, *more)[1].splitlines()
        assert first.split() == ["session", "tenant", "program", "status", "version", "messages", "title"]
        found += [tuple(row.split()[:2]) for row in rows if row.startswith("s")]
        more = ["--limit", "3", *rows[-1].partition("There are more: repeat this with ")[2].split()]
    assert found == made
    assert more == ["--limit", "3"]


def test_a_place_in_a_list_that_no_page_named_is_refused(file: Place) -> None:
    asyncio.run(fill(file))
    assert refused("session", "list", *file.arguments, "--after", "yesterday")[:2] == (2, "invalid_input")


def test_sessions_are_listed_by_status_and_tenant(place: Place) -> None:
    asyncio.run(fill(place))
    assert reported("session", "list", *place.arguments, "--status", "suspended")["sessions"] == []
    assert len(reported("session", "list", *place.arguments, "--status", "active")["sessions"]) == 5
    assert len(reported("session", "list", *place.arguments, "--tenant", "green")["sessions"]) == 2
    assert reported("session", "list", *place.arguments, "--tenant", "")["sessions"] == []


def test_a_wait_is_found_and_answered_and_a_worker_goes_on(listed: tuple[Place, str, str]) -> None:
    place, wait_id, run_id = listed
    (wait,) = reported("session", "waits", "refund-7", *place.arguments)["waits"]
    assert (wait["wait_id"], wait["run_id"], wait["deadline"]) == (wait_id, run_id, None)
    assert (wait["kind"], wait["signal_id"], wait["metadata"]["amount"]) == ("approval", "refund", 49)
    assert wait_id in tenuto("session", "waits", "refund-7", *place.arguments)[1]
    for replayed in (False, True):
        answered = reported("session", "answer", wait_id, "true", *place.arguments)
        expected = {"session_id": "refund-7", "run_id": run_id, "continues": "worker", "open_waits": []}
        assert answered == {**expected, "replayed": replayed}
    code, category, message = refused("session", "answer", wait_id, "false", *place.arguments)
    assert (code, category) == (1, "already_answered")
    assert "the first answer is kept" in message
    code, out, err = tenuto("session", "answer", wait_id, "false", *place.arguments)
    assert (code, out) == (1, "")
    assert "the first answer is kept" in err
    assert asyncio.run(drained(place)) == ["refund order 7", "Paid."]


def test_people_are_told_what_an_answer_does(listed: tuple[Place, str, str]) -> None:
    place, wait_id, _ = listed
    code, out, _ = tenuto("session", "answer", wait_id, '{"approved": false}', *place.arguments)
    assert (code, out) == (0, "Answered. Session 'refund-7': a worker resumes it.\n")
    assert asyncio.run(drained(place)) == ["refund order 7", "Not paid."]


def test_a_stop_says_how_the_run_was_found(listed: tuple[Place, str, str]) -> None:
    place, _, _ = listed
    stopped = reported("session", "stop", "refund-7", *place.arguments, "--kind", "abort")
    assert stopped["run_status"] == "suspended"
    told = tenuto("session", "stop", "refund-7", *place.arguments)[1]
    assert told == "Nothing runs, so nothing was stopped; the run still takes answers (run status: suspended).\n"
    assert refused("session", "stop", "idle", *place.arguments)[:2] == (1, "store_commit_failed")


def test_every_verb_acts_on_one_tenant(place: Place) -> None:
    ours, _ = asyncio.run(suspended(place))
    blue, run_id = asyncio.run(suspended(place, "blue"))
    at_blue = [*place.arguments, "--tenant", "blue"]
    shown = reported("session", "show", "refund-7", *at_blue)
    assert (shown["tenant"], shown["metadata"], shown["runs"][0]["run_id"]) == ("blue", {"shop": "blue"}, run_id)
    (wait,) = reported("session", "waits", "refund-7", *at_blue)["waits"]
    assert wait["wait_id"] == blue
    for wait_id, where in ((blue, place.arguments), (ours, at_blue), (blue, [*place.arguments, "--tenant", "green"])):
        assert refused("session", "answer", wait_id, "true", *where)[:2] == (1, "wait_unknown")
    for verb in ("show", "waits", "stop"):
        where = [*place.arguments, "--tenant", "green"]
        assert refused("session", verb, "refund-7", *where)[:2] == (1, "session_not_found")
    assert reported("session", "answer", blue, "true", *at_blue)["run_id"] == run_id
    assert asyncio.run(drained(place, "blue")) == ["refund order 7 blue", "Paid."]
    assert reported("session", "stop", "refund-7", *place.arguments, "--kind", "abort")["run_status"] == "suspended"
    (wait,) = reported("session", "waits", "refund-7", *place.arguments)["waits"]
    assert wait["wait_id"] == ours


@pytest.mark.parametrize("verb", ["show", "waits", "stop"])
def test_a_session_that_is_not_there_ends_with_one(place: Place, verb: str) -> None:
    asyncio.run(make(place))
    code, category, message = refused("session", verb, "nobody", *place.arguments)
    assert (code, category) == (1, "session_not_found")
    assert "'nobody'" in message
    code, out, err = tenuto("session", verb, "nobody", *place.arguments)
    assert (code, out) == (1, "")
    assert "'nobody'" in err


def test_everything_that_is_waited_for_is_listed_page_by_page(place: Place) -> None:
    ours, _ = asyncio.run(suspended(place))
    blue, _ = asyncio.run(suspended(place, "blue"))

    def listed(*arguments: str) -> list[str]:
        return [wait["wait_id"] for wait in reported("session", "waits", *place.arguments, *arguments)["waits"]]

    assert listed() == [ours, blue]
    assert listed("--tenant", "blue") == [blue]
    assert listed("--kind", "approval") == [ours, blue]
    assert listed("--kind", "child") == listed("--user", "nobody") == []
    page = reported("session", "waits", *place.arguments, "--limit", "1")
    assert listed("--after", page["next"]) == [blue]
    _, shown, _ = tenuto("session", "waits", *place.arguments, "--limit", "1")
    assert ours in shown
    assert "refund-7" in shown
    assert f"--after {page['next']}" in shown
    code, _, err = tenuto("session", "waits", "refund-7", "--kind", "approval", *place.arguments)
    assert (code, "leave out the session's id" in err) == (2, True)


def test_a_session_that_waits_for_nothing_has_no_waits(listed: tuple[Place, str, str]) -> None:
    place, _, _ = listed
    assert reported("session", "waits", "idle", *place.arguments) == {"waits": [], "next": None}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("list", "--store", "sqlite:///nowhere.db"), "There is no file 'nowhere.db'"),
        (("list", "--store", "mysql://host"), "not a store address"),
        (("list", "--store", "memory://"), "no other process can use"),
        (("show", "a/b", "--store", "sqlite:///chats.db"), "a/b"),
        (("answer", "w", "{", "--store", "sqlite:///chats.db"), "is not JSON"),
    ],
)
def test_what_cannot_be_asked_at_all_ends_with_two(
    file: Place, folder: Path, arguments: tuple[str, ...], said: str
) -> None:
    asyncio.run(make(file))
    code, out, err = tenuto("session", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    code, _, message = refused("session", *arguments)
    assert code == 2
    assert said in message
    assert not (folder / "nowhere.db").exists()
