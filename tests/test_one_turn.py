"""One warm `send`, followed through the rooms: how many files it takes, and how often it goes back.

At most 25 files above the store, no call from a lower room into a higher one, and no file that is entered again while
it waits for a call into another to return. The numbers are pinned; each may only go down.
"""

from pathlib import Path

import pytest

import tenuto
from tenuto import SessionRuntime, Turn, open_store, program
from tests.calls import Call, Calls
from tests.test_architecture import ROOMS, room_of

HOME = Path(tenuto.__file__).parent
ABOVE_THE_STORE = ("runtime", "writing")
FILES = 25
"""The files that are entered; 25 are the most."""
STEPS_UP = 0
"""The calls from a room into one that stands on it, by their files and functions."""
ENTERED_AGAIN = 0
"""The calls A -> B -> A, by these three."""


@program
async def greets(turn: Turn) -> str:
    turn.append({"role": "assistant", "content": "hello"})
    return "greeted"


@pytest.fixture
async def calls(tmp_path: Path) -> list[Call]:
    """Send to a session that is in memory already."""
    async with (
        open_store(f"sqlite:///{tmp_path}/one.db", synchronous="OFF") as store,
        SessionRuntime(store, [greets]) as runtime,
    ):
        session = await runtime.create(greets, session_id="s")
        for _ in range(3):
            await session.send("hi")
        watch = Calls(HOME, ABOVE_THE_STORE, __file__)
        with watch.watched():
            outcome = await session.send("hi")
        assert outcome.completed
        return watch.calls


def below(room: str) -> set[str]:
    """Return the rooms that a room stands on."""
    found, left = set[str](), set(ROOMS[room])
    while left:
        found |= left
        left = {lower for each in left for lower in ROOMS[each]} - found
    return found - {room}


def room(file: str) -> str:
    """Return the room of a file."""
    return room_of(f"tenuto.{file.removesuffix('.py').replace('/', '.')}")


def steps_up(calls: list[Call]) -> list[str]:
    """Return the calls that go from a room to one that stands on it."""
    found = dict[str, None]()
    for call in calls:
        for file, function in call.callers[:1]:
            if room(file) in below(room(call.file)):
                found[f"{file}: {function} -> {call.file}: {call.function}"] = None
    return list(found)


def entered_again(calls: list[Call]) -> list[str]:
    """Return the calls into a file that waits for another, which is left for it: of each, the way A -> B -> A."""
    found = dict[str, None]()
    for call in calls:
        files = [file for file, _ in call.callers]
        if files and files[0] != call.file and call.file in files:
            waiting = call.callers[files.index(call.file)][1]
            found[f"{call.file}: {waiting} -> {files[0]}: {call.callers[0][1]} -> {call.file}: {call.function}"] = None
    return list(found)


def test_a_warm_send_takes_few_files(calls: list[Call]) -> None:
    files = sorted({call.file for call in calls})
    assert len(files) == FILES, "\n".join([f"{len(files)} files:", *files])


def test_a_warm_send_does_not_go_back_up(calls: list[Call]) -> None:
    found = steps_up(calls)
    assert len(found) == STEPS_UP, "\n".join([f"{len(found)} steps up:", *found])


def test_a_warm_send_does_not_enter_a_file_again_that_it_left(calls: list[Call]) -> None:
    found = entered_again(calls)
    assert len(found) == ENTERED_AGAIN, "\n".join([f"{len(found)} files entered again:", *found])


def call(file: str, *callers: str) -> Call:
    return Call(file, "f", tuple((each, "g") for each in callers))


def test_a_step_from_a_lower_room_to_a_higher_one_is_found() -> None:
    up = call("runtime/runtime.py", "writing/pages.py")
    assert steps_up([up, call("writing/pages.py", "runtime/runtime.py"), up]) == [
        "writing/pages.py: g -> runtime/runtime.py: f"
    ]


def test_a_file_that_is_entered_again_is_found_and_one_that_calls_itself_is_not() -> None:
    a, b, c = "runtime/a.py", "runtime/b.py", "runtime/c.py"
    assert entered_again([call(a, b, c, a)]) == [f"{a}: g -> {b}: g -> {a}: f"]
    assert not entered_again([call(a), call(a, a), call(a, a, b), call(b, a), call(c, b, a)])
