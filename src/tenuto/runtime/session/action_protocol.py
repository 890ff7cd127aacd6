"""What an action is, for those who pass one on; `tenuto.actions` has those that exist."""

from typing import Protocol, runtime_checkable

from tenuto.runtime.session.session_view import SessionView


class Verb:
    """An action that is one of the session's verbs, as a value."""

    __slots__ = ()


@runtime_checkable
class Action(Protocol):
    """Changes a session: `apply` receives its value and returns the one to save, or raises."""

    async def apply(self, session: SessionView) -> SessionView:
        """Return the changed session."""
        ...
