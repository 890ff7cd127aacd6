"""Hooks: user code that runs at fixed stages of creating and changing a session."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tenuto.errors import InvalidInput
from tenuto.runtime.session.session_view import Session


class Stage(StrEnum):
    """When a hook is called."""

    BEFORE_CREATE = "before_create"
    AFTER_CREATE = "after_create"
    AFTER_LOAD = "after_load"
    AFTER_ACTION = "after_action"
    BEFORE_SAVE = "before_save"
    AFTER_SAVE = "after_save"


class Controller(Protocol):
    """A hook: receives a session at every stage and returns it, changed or not.

    Changes up to `before_save` are stored; later changes are only in the value that is returned.
    """

    async def on_stage(self, stage: Stage, session: Session) -> Session:
        """Return the session to continue with."""
        ...


@dataclass(frozen=True, slots=True)
class _Hook:
    controller: Controller
    priority: int
    name: str


class HookStack:
    """Several hooks as one: higher priority first, ties in order of registration; each receives the previous result."""

    def __init__(self, controllers: Iterable[Controller] = ()) -> None:
        self._hooks: tuple[_Hook, ...] = tuple(_Hook(each, 0, type(each).__name__) for each in controllers)

    def with_hook(self, controller: Controller, priority: int = 0, name: str | None = None) -> "HookStack":
        """Return a stack with one more hook; this one is not changed."""
        stack = HookStack()
        hooks = [*self._hooks, _Hook(controller, priority, name or type(controller).__name__)]
        stack._hooks = tuple(sorted(hooks, key=lambda hook: -hook.priority))
        return stack

    @property
    def names(self) -> tuple[str, ...]:
        """The hooks' names, in the order in which they are called."""
        return tuple(hook.name for hook in self._hooks)

    async def on_stage(self, stage: Stage, session: Session) -> Session:
        """See `Controller.on_stage`; a hook that returns anything but its session raises `InvalidInput`."""
        for hook in self._hooks:
            session = same_session(session, await hook.controller.on_stage(stage, session), hook.name)
        return session


def as_controller(hooks: Controller | Iterable[Controller] | None) -> Controller | None:
    """Return one hook, or several, as one; None if there are none."""
    return None if hooks is None else HookStack(hooks if isinstance(hooks, Iterable) else [hooks])


class At:
    """An async function as a hook for one stage: `At(Stage.BEFORE_SAVE, stamp)`."""

    def __init__(self, stage: Stage, function: Callable[[Session], Awaitable[Session]]) -> None:
        self._stage = stage
        self._function = function

    async def on_stage(self, stage: Stage, session: Session) -> Session:
        """See `Controller.on_stage`."""
        return await self._function(session) if stage is self._stage else session


def same_session(session: Session, returned: object, name: str) -> Session:
    """Return the session that a hook or an action returned; anything but the same session is refused."""
    if isinstance(returned, Session) and returned.key == session.key:
        return returned
    what = f"{returned.key}" if isinstance(returned, Session) else type(returned).__name__
    raise InvalidInput(f"{name} must return {session.key}, changed or not, but returned {what}.")
