"""Controllers and stacks of them."""

from itertools import permutations
from typing import Any

import pytest

from tenuto.errors import InvalidInput
from tenuto.model.session import Profile, SessionKey, SessionStatus
from tenuto.runtime.change.hooks import At, Controller, HookStack
from tenuto.runtime.session.session_view import SessionView
from tenuto.words import Stage


def a_session(session_id: str = "s") -> SessionView:
    return SessionView(
        key=SessionKey(session_id),
        status=SessionStatus.ACTIVE,
        version=1,
        commit_number=1,
        definition=None,
        profile=Profile(),
    )


class Signing:
    """Adds its name to what the session was signed by."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def on_stage(self, stage: Stage, session: SessionView) -> SessionView:
        signed: Any = session.document.get("signed", "")
        return session.with_fields(signed=signed + self.name)


async def signed_by(stack: Controller) -> Any:
    return (await stack.on_stage("before_save", a_session())).document.get("signed", "")


HOOKS = [("a", 0), ("b", 5), ("c", 0), ("d", -1), ("e", 5)]


@pytest.mark.parametrize("order", list(permutations(HOOKS))[::7])
async def test_higher_priority_runs_first_and_ties_in_order_of_registration(order: list[tuple[str, int]]) -> None:
    stack = HookStack()
    for name, priority in order:
        stack = stack.with_hook(Signing(name), priority, name)
    expected = "".join(name for name, _ in sorted(order, key=lambda hook: -hook[1]))
    assert await signed_by(stack) == expected
    assert "".join(stack.names) == expected


async def test_hooks_given_together_stand_among_those_added_later() -> None:
    stack = HookStack([Signing("a"), Signing("b")]).with_hook(Signing("c"), 1).with_hook(Signing("d"), -1)
    assert await signed_by(stack.with_hook(Signing("e"))) == "cabed"


async def test_a_stack_is_a_controller_within_a_stack() -> None:
    inner = HookStack([Signing("b")]).with_hook(Signing("a"), 1)
    assert await signed_by(HookStack([inner, Signing("c")])) == "abc"


async def test_adding_a_hook_leaves_the_stack_as_it_was() -> None:
    stack = HookStack([Signing("a")])
    more = stack.with_hook(Signing("b"))
    assert (await signed_by(stack), await signed_by(more)) == ("a", "ab")
    assert stack.names == ("Signing",)


async def test_a_function_can_stand_at_one_stage() -> None:
    async def mark(session: SessionView) -> SessionView:
        return session.with_fields(marked=True)

    controller = At("before_save", mark)
    marked = [stage for stage in Stage if (await controller.on_stage(stage, a_session())).document]
    assert marked == ["before_save"]


@pytest.mark.parametrize("returned", [None, "s", a_session("other")])
async def test_a_controller_has_to_return_the_session_it_was_given(returned: Any) -> None:
    class Careless:
        async def on_stage(self, stage: Stage, session: SessionView) -> SessionView:
            found: SessionView = returned
            return found

    with pytest.raises(InvalidInput, match="Careless"):
        await HookStack([Careless()]).on_stage("after_load", a_session())


async def test_a_failing_hook_keeps_the_ones_after_it_from_being_asked() -> None:
    asked = []

    class Failing:
        async def on_stage(self, stage: Stage, session: SessionView) -> SessionView:
            raise LookupError("gone")

    class Asked:
        async def on_stage(self, stage: Stage, session: SessionView) -> SessionView:
            asked.append(stage)
            return session

    with pytest.raises(LookupError):
        await HookStack([Failing(), Asked()]).on_stage("after_load", a_session())
    assert asked == []
