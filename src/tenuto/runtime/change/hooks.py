"""Hooks: user code that runs at fixed stages of creating and changing a session."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias, overload

from tenuto.argument import check_items, check_word
from tenuto.errors import InvalidInput
from tenuto.quote import quote
from tenuto.runtime.session.session_view import SessionView
from tenuto.words import Stage

HookFunction: TypeAlias = Callable[[SessionView], Awaitable[SessionView]]
"""Receives a session and returns it, changed or not, or raises to refuse it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """An async function that is called at one stage; made by `on`."""

    stage: Stage
    function: HookFunction
    priority: int = 0
    name: str = ""


@overload
def on(stage: Stage, function: HookFunction, *, priority: int = 0, name: str | None = None) -> Hook: ...
@overload
def on(stage: Stage, *, priority: int = 0, name: str | None = None) -> Callable[[HookFunction], Hook]: ...
def on(
    stage: Stage, function: HookFunction | None = None, *, priority: int = 0, name: str | None = None
) -> Hook | Callable[[HookFunction], Hook]:
    """Return a hook that calls a function at a stage; without a function, a decorator that makes one.

    Changes up to `before_save` are stored; later changes are only in the value that is returned. Hooks of a higher
    priority are called first, those of one priority in the order in which the runtime lists them.
    """
    check_word(stage, Stage, "the stage of a hook")

    def made(body: HookFunction) -> Hook:
        if not callable(body):
            raise InvalidInput(f"A hook needs an async function of the session, got {quote(body)}.")
        called = name or str(getattr(body, "__qualname__", type(body).__name__))
        return Hook(stage=stage, function=body, priority=priority, name=called)

    return made if function is None else made(function)


class Hooks(dict[str, list[Hook]]):
    """The hooks of a runtime, by stage; each receives what the one before it returned."""

    def __init__(self, hooks: Iterable[Hook] = ()) -> None:
        super().__init__()
        for each in check_items(hooks, "hooks"):
            if not isinstance(each, Hook):
                raise InvalidInput(f'{quote(each)} is not a hook: make one with on("before_save", function).')
            self.setdefault(each.stage, []).append(each)
        for same in self.values():
            same.sort(key=lambda hook: -hook.priority)

    async def on_stage(self, stage: Stage, session: SessionView) -> SessionView:
        """Call the hooks of a stage; one that returns anything but its session raises `InvalidInput`."""
        for hook in self.get(stage, ()):
            session = same_session(session, await hook.function(session), hook.name)
        return session


def same_session(session: SessionView, returned: object, name: str) -> SessionView:
    """Return the session that a hook or an action returned; anything but the same session is refused."""
    if isinstance(returned, SessionView) and returned.key == session.key:
        return returned
    what = f"{returned.key}" if isinstance(returned, SessionView) else type(returned).__name__
    raise InvalidInput(f"{name} must return {session.key}, changed or not, but returned {what}.")
