"""Controllers: code of the user's own at fixed stages of creating and changing a session."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tenuto.errors import InvalidInput
from tenuto.runtime.session.session_view import Session


class Stage(StrEnum):
    """Where a controller is asked."""

    BEFORE_CREATE = "before_create"
    AFTER_CREATE = "after_create"
    AFTER_LOAD = "after_load"
    AFTER_ACTION = "after_action"
    BEFORE_SAVE = "before_save"
    AFTER_SAVE = "after_save"


class Controller(Protocol):
    """Sees a session at every stage and returns it, changed or not.

    What is changed up to `before_save` is stored; what is changed after that is only in the value that is returned.
    """

    async def on_stage(self, stage: Stage, session: Session) -> Session:
        """Return the session to go on with."""
        ...


@dataclass(frozen=True, slots=True)
class _Hook:
    controller: Controller
    priority: int
    name: str


class HookStack:
    """Several controllers as one: higher priority first, ties in order of registration; each feeds the next."""

    def __init__(self, controllers: Iterable[Controller] = ()) -> None:
        self._hooks: tuple[_Hook, ...] = tuple(_Hook(each, 0, type(each).__name__) for each in controllers)

    def with_hook(self, controller: Controller, priority: int = 0, name: str | None = None) -> "HookStack":
        """Return a stack with one more controller; this one stays as it is."""
        stack = HookStack()
        hooks = [*self._hooks, _Hook(controller, priority, name or type(controller).__name__)]
        stack._hooks = tuple(sorted(hooks, key=lambda hook: -hook.priority))
        return stack

    @property
    def names(self) -> tuple[str, ...]:
        """The controllers' names, in the order they are asked."""
        return tuple(hook.name for hook in self._hooks)

    async def on_stage(self, stage: Stage, session: Session) -> Session:
        """See `Controller.on_stage`; one that returns no session, or another one, is refused."""
        for hook in self._hooks:
            session = same_session(session, await hook.controller.on_stage(stage, session), hook.name)
        return session


def as_controller(hooks: Controller | Iterable[Controller] | None) -> Controller | None:
    """Return one controller, or several, as one; None if there are none."""
    return None if hooks is None else HookStack(hooks if isinstance(hooks, Iterable) else [hooks])


class At:
    """An async function as a controller for one stage: `At(Stage.BEFORE_SAVE, stamp)`."""

    def __init__(self, stage: Stage, function: Callable[[Session], Awaitable[Session]]) -> None:
        self._stage = stage
        self._function = function

    async def on_stage(self, stage: Stage, session: Session) -> Session:
        """See `Controller.on_stage`."""
        return await self._function(session) if stage is self._stage else session


def same_session(given: Session, returned: object, name: str) -> Session:
    """Return what a controller or an action made of a session; anything but that session is refused."""
    if isinstance(returned, Session) and returned.key == given.key:
        return returned
    what = f"{returned.key}" if isinstance(returned, Session) else type(returned).__name__
    raise InvalidInput(f"{name} was given {given.key} and has to return it, changed or not; it returned {what}.")
