"""The state of a turn: an instance of the model that its program declares, or the fields of its session's document."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from tenuto.runtime.calls.arguments import check_fields
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.typed_state import TypedState
from tenuto.store.bounds import check_name
from tenuto.words import JSON


class Document(Mapping[str, Any]):
    """Plain fields. A field that is set or deleted is written with the next commit.

    A change inside a value is not noticed: set the field to a new value.
    """

    __slots__ = ("_context",)

    def __init__(self, context: TurnContext) -> None:
        self._context = context

    def __getitem__(self, name: str) -> Any:
        check_name(name, "a field's name")
        return self._context.replica.document[name]

    def __setitem__(self, name: str, value: JSON) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        context = self._context
        context.check_open()
        left = dict(context.replica.document)
        del left[name]
        context.replica.document = left
        context.pending.document.pop(name, None)
        context.pending.removed.add(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._context.replica.document)

    def __len__(self) -> int:
        return len(self._context.replica.document)

    def __repr__(self) -> str:
        return repr(dict(self))

    def update(self, fields: Mapping[str, JSON] | None = None, /, **named: JSON) -> None:
        """Set fields: all of them, or, if one cannot be stored, none."""
        fields, context = {**(fields or {}), **named}, self._context
        context.check_open()
        check_fields(fields, context.replica.logs, context.writer.store.budget)
        context.replica.document = context.replica.document | fields
        context.pending.document |= fields
        context.pending.removed -= fields.keys()


def typed_state(context: TurnContext) -> TypedState | None:
    """Return the state of a turn whose program declares a model; None if it declares none."""
    shape = context.traits.state
    if shape is not None and context.typed is None:
        check = partial(check_fields, logs=context.replica.logs, budget=context.writer.store.budget)
        context.typed = TypedState(context, shape, check)
    found: TypedState | None = context.typed
    return found
