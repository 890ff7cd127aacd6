"""Notices, and those who hear them."""

import logging

import pytest

from tenuto.model.session import SessionKey
from tenuto.runtime.stream import notices
from tenuto.runtime.stream.notices import (
    Failure,
    ListenerFailed,
    Listeners,
    Notice,
    RunEnded,
    SessionLoaded,
    SessionSaved,
)

KEY = SessionKey("s", tenant="t")
SAVED = SessionSaved(key=KEY, version=3, status="active")
LOADED = SessionLoaded(key=KEY, version=2, status="active")


def failing_on(kind: type[Notice], heard: list[Notice]) -> object:
    def listener(notice: Notice) -> None:
        heard.append(notice)
        if isinstance(notice, kind):
            raise LookupError(f"cannot hear {notice.type}")

    return listener


async def test_every_listener_hears_every_notice_in_order() -> None:
    first: list[Notice] = []
    second: list[Notice] = []

    async def late(notice: Notice) -> None:
        second.append(notice)

    await Listeners([first.append, late]).tell(LOADED, SAVED)
    assert first == second == [LOADED, SAVED]


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_one_that_fails_is_told_to_the_others_after_what_it_failed_on(
    place: int, caplog: pytest.LogCaptureFixture
) -> None:
    failing: list[Notice] = []
    others: list[list[Notice]] = [[], []]
    listeners: list[object] = [other.append for other in others]
    listeners.insert(place, failing_on(SessionLoaded, failing))
    with caplog.at_level(logging.CRITICAL, "tenuto.runtime"):
        await Listeners(listeners).tell(LOADED, SAVED)  # type: ignore[arg-type]
    assert failing == [LOADED, SAVED]
    for heard in others:
        assert [each.type for each in heard] == ["session_loaded", "listener_failed", "session_saved"]
        fault = heard[1]
        assert isinstance(fault, ListenerFailed)
        assert (fault.key, fault.notice, fault.error) == (
            KEY,
            "session_loaded",
            "LookupError('cannot hear session_loaded')",
        )
        assert "listener" in fault.listener


async def test_listeners_that_fail_on_everything_end_it_there(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[list[Notice]] = [[], []]
    with caplog.at_level(logging.CRITICAL, "tenuto.runtime"):
        await Listeners([failing_on(Notice, each) for each in heard]).tell(SAVED)  # type: ignore[misc]
    assert [[each.type for each in one] for one in heard] == [["session_saved", "listener_failed"]] * 2


def test_a_notice_leaves_out_its_session_and_what_is_not_there() -> None:
    assert SAVED.data() == {"version": 3, "status": "active"}
    ended = RunEnded(key=KEY, run_id="r", status="completed", steps=0)
    assert ended.data() == {"run_id": "r", "status": "completed", "steps": 0}
    assert (ended.event().type, ended.session_id) == ("run_ended", "s")


def test_every_kind_of_notice_has_a_name_of_its_own() -> None:
    found = (each for each in vars(notices).values() if isinstance(each, type) and issubclass(each, Notice))
    names = [kind.type for kind in found if kind not in (Notice, Failure)]
    assert len(names) == len(set(names)) == 14
    assert "notice" not in names
