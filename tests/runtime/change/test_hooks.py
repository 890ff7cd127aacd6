"""Hooks: in which order they are asked, and what they must return."""

from itertools import permutations
from typing import Any

import pytest

from tenuto import on
from tenuto.errors import InvalidInput
from tenuto.model.session import Profile, SessionKey, SessionStatus
from tenuto.runtime.change.hooks import HookFunction, Hooks
from tenuto.runtime.session.session_view import SessionView
from tests.runtime.talking import STAGES


def a_session(session_id: str = "s") -> SessionView:
    return SessionView(
        key=SessionKey(session_id),
        status=SessionStatus.ACTIVE,
        version=1,
        commit_number=1,
        definition=None,
        profile=Profile(),
    )


def signing(name: str) -> HookFunction:
    """Return a hook that adds its name to what the session was signed by."""

    async def sign(session: SessionView) -> SessionView:
        signed: Any = session.document.get("signed", "")
        return session.with_fields(signed=signed + name)

    return sign


async def signed_by(hooks: Hooks) -> Any:
    return (await hooks.on_stage("before_save", a_session())).document.get("signed", "")


HOOKS = [("a", 0), ("b", 5), ("c", 0), ("d", -1), ("e", 5)]


@pytest.mark.parametrize("order", list(permutations(HOOKS))[::7])
async def test_higher_priority_runs_first_and_ties_in_the_order_of_the_list(order: list[tuple[str, int]]) -> None:
    hooks = Hooks(on("before_save", signing(name), priority=priority) for name, priority in order)
    assert await signed_by(hooks) == "".join(name for name, _ in sorted(order, key=lambda hook: -hook[1]))


async def test_a_list_of_hooks_can_be_changed_without_the_runtimes() -> None:
    given = [on("before_save", signing("a"))]
    hooks = Hooks(given)
    given.append(on("before_save", signing("b")))
    assert (await signed_by(hooks), await signed_by(Hooks(given))) == ("a", "ab")


@pytest.mark.parametrize("at", STAGES)
async def test_a_hook_is_asked_at_its_stage_alone(at: str) -> None:
    hooks = Hooks([on(stage, signing(stage)) for stage in STAGES if stage == at])
    signed = {stage: (await hooks.on_stage(stage, a_session())).document.get("signed") for stage in STAGES}
    assert signed == dict.fromkeys(STAGES) | {at: at}


async def test_a_hook_can_be_made_by_decorating_its_function() -> None:
    @on("before_save", priority=1)
    async def mark(session: SessionView) -> SessionView:
        return session.with_fields(signed="marked ")

    assert await signed_by(Hooks([on("before_save", signing("a")), mark])) == "marked a"
    assert (mark.stage, mark.priority) == ("before_save", 1)
    assert mark.name.endswith("mark")
    assert on("after_load", signing("a"), name="signer").name == "signer"


def test_what_is_no_hook_is_refused() -> None:
    wrong: list[Any] = ["before_save", signing("a"), None]
    for each in wrong:
        with pytest.raises(InvalidInput, match=r"is not a hook"):
            Hooks([each])
    stage: Any = "sometimes"
    with pytest.raises(InvalidInput, match="stage"):
        on(stage, signing("a"))
    body: Any = "sign"
    with pytest.raises(InvalidInput, match="async function"):
        on("before_save", body)


@pytest.mark.parametrize("returned", [None, "s", a_session("other")])
async def test_a_hook_has_to_return_the_session_it_was_given(returned: Any) -> None:
    async def careless(session: SessionView) -> SessionView:
        found: SessionView = returned
        return found

    with pytest.raises(InvalidInput, match="careless"):
        await Hooks([on("after_load", careless)]).on_stage("after_load", a_session())


async def test_a_failing_hook_keeps_the_ones_after_it_from_being_asked() -> None:
    asked = []

    async def failing(session: SessionView) -> SessionView:
        raise LookupError("gone")

    async def noting(session: SessionView) -> SessionView:
        asked.append(session)
        return session

    hooks = Hooks([on("after_load", failing), on("after_load", noting)])
    with pytest.raises(LookupError):
        await hooks.on_stage("after_load", a_session())
    assert asked == []
