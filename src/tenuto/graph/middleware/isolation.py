"""Let a node fail without failing the graph."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from tenuto.errors import InvalidInput
from tenuto.graph.engine.cause import NOT_THE_NODES, cause_chain, derived_category, derived_message
from tenuto.graph.engine.node import Next, Update
from tenuto.graph.engine.scope import scope_variable
from tenuto.graph.events.node_event import CaughtException, FailureIsolatedEvent


class FailureIsolation:
    """Catch a failure and return `degraded_update` instead; observers are notified under `event_name`.

    `catch` names the derived categories to catch, `predicate` decides by the exception; without them, every
    `Exception` is caught.
    """

    def __init__(
        self,
        degraded_update: Mapping[str, Any] | Callable[[Any], Mapping[str, Any]],
        event_name: str,
        catch: Collection[str] | None = None,
        predicate: Callable[[Exception], bool] | None = None,
        on_caught: Callable[[Exception], Awaitable[None] | None] | None = None,
    ) -> None:
        if not event_name:
            raise InvalidInput("Failure isolation needs an event_name, so that failures are seen.")
        self._degraded = degraded_update
        self._event_name = event_name
        self._catch = None if catch is None else frozenset(catch)
        self._predicate = predicate
        self._on_caught = on_caught

    def lacks(self, field: str) -> bool:
        """Return whether the degraded update is known to leave a field out."""
        return isinstance(self._degraded, Mapping) and field not in self._degraded

    async def __call__(self, state: Any, following: Next) -> Update:
        """See `Middleware`."""
        try:
            return await following(state)
        except Exception as error:
            if not self._catches(error):
                raise
            caught = error
        update = self._degraded if isinstance(self._degraded, Mapping) else self._degraded(state)
        self._notify(state, update, caught)
        if self._on_caught and (waiting := self._on_caught(caught)) is not None:
            await waiting
        return update

    def _catches(self, error: Exception) -> bool:
        if isinstance(error, NOT_THE_NODES):
            return False
        if self._catch is not None and derived_category(error) not in self._catch:
            return False
        return self._predicate is None or self._predicate(error)

    def _notify(self, state: Any, update: Mapping[str, Any], error: Exception) -> None:
        scope = scope_variable.get()
        if scope is None or scope.frame is None or scope.frame.run.delivery is None:
            return
        event = FailureIsolatedEvent(
            event_name=self._event_name,
            namespace=scope.namespace,
            attempt_index=scope.attempt_index,
            fan_out_index=scope.fan_out_index,
            branch_name=scope.branch_name,
            pre_state=state,
            post_state=update,
            caught_exception=CaughtException(
                chain=cause_chain(error), category=derived_category(error), message=derived_message(error)
            ),
            scope=scope,
        )
        scope.frame.emit(event)
