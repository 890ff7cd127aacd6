"""The state of a turn whose program declares a model: read as an instance of it, and written field by field."""

import asyncio
from collections.abc import Callable, Mapping
from functools import lru_cache
from inspect import getattr_static, iscoroutine
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from tenuto.argument import check_map
from tenuto.errors import InvalidInput, StateConflict
from tenuto.runtime.session.frozen_value import derived, frozen, show
from tenuto.runtime.session.state_shape import StateShape

if TYPE_CHECKING:
    from tenuto.runtime.turn.context import TurnContext

_HOLDER = "_tenuto_state"

Check = Callable[[Mapping[str, Any]], None]
"""Refuses fields that cannot be stored."""


class TypedState:
    """A session's document as an instance of the declared model, for one turn.

    `view` is what the program holds. Its values are frozen copies; a field that is assigned is validated and pending at
    once. A task that assigns a field after another one has changed what it read gets a `StateConflict`; the program's
    own task does not, once the other one is done.
    """

    def __init__(self, turn: "TurnContext", shape: StateShape, check: Check) -> None:
        self._turn = turn
        self._shape = shape
        self._check = check
        self._document: Mapping[str, Any] = {}
        self._model: Any = None
        self._shown: dict[str, Any] = {}
        self._writes: dict[str, tuple[int, asyncio.Task[Any] | None]] = {}
        self._reads: WeakKeyDictionary[asyncio.Task[Any], dict[str, int]] = WeakKeyDictionary()
        self._count = 0
        self._updating = False
        self._view = object.__new__(_live_kind(shape.model))
        object.__setattr__(self._view, _HOLDER, self)

    @property
    def view(self) -> Any:
        """The current state; the same object for the whole turn."""
        self.follow()
        return self._view

    def follow(self) -> None:
        """Read the session's document again if others than the program have changed it; raise `StateInvalid`."""
        replica = self._turn.replica
        if self._document is replica.document:
            return
        known = replica.projected
        if known is not None and known[0] is self._shape and known[1] is replica.document:
            self._model, self._shown = known[2], known[3]
            self._show(self._model)
        else:
            self._show(self._shape.load(replica.document, str(replica.key)))

    def note_read(self, name: str) -> None:
        """Note that the current task has read a field."""
        if not self._updating and (task := _task()) is not None:
            self._reads.setdefault(task, {})[name] = self._written(name)[0]

    def assign(self, name: str, value: Any) -> None:
        """Set a field."""
        self.follow()
        task = _task()
        count, writer = self._written(name)
        read = count if task is None else self._reads.get(task, {}).get(name, count)
        ours = writer is task or (writer is not None and writer.done() and task is self._turn.task)
        if read != count and not ours:
            raise StateConflict(
                f"state.{name} was changed by another task after this one had read it; a value made from what was read "
                f"would undo that. Use turn.update(lambda state: {{{name!r}: ...}}), which works on the newest state.",
                path=f"state.{name}",
            )
        self.write({name: value})

    def update(self, change: Callable[[Any], Mapping[str, Any]]) -> None:
        """Set the fields that a function of the newest state returns."""
        view, count, outer = self.view, self._count, self._updating
        self._updating = True
        try:
            given: Any = change(view)
        finally:
            self._updating = outer
        if iscoroutine(given):
            given.close()
            raise InvalidInput("The function of an update must return the fields to set, without awaiting: use `def`.")
        check_map(given, "what an update returns")
        if self._count != count:
            raise StateConflict(
                "The function of an update changed the state itself, so what it returns was made from an older state; "
                "let it only return the fields to set.",
                path="state",
            )
        self.write(given)

    def write(self, given: Mapping[str, Any]) -> None:
        """Set fields: all of them, or, if one cannot be stored, none."""
        turn = self._turn
        turn.check_open()
        self.follow()
        replica, pending = turn.replica, turn.pending
        model, data = self._shape.changed(self._model, replica.document, given)
        self._check(data)
        self._count += 1
        task = _task()
        for name in {*given, *data}:
            self._writes[name] = (self._count, task)
            if task is not None:
                self._reads.setdefault(task, {})[name] = self._count
        missing: Any = object()
        data = {name: value for name, value in data.items() if replica.document.get(name, missing) != value}
        if data:
            replica.document = replica.document | data
            pending.document |= data
            pending.removed -= data.keys()
        self._show(model)

    def _written(self, name: str) -> tuple[int, "asyncio.Task[Any] | None"]:
        return self._writes.get(name, (0, None))

    def _show(self, model: Any) -> None:
        """Let the view show a model; what did not change since the last one keeps its frozen copy."""
        replica, fields = self._turn.replica, self._shape.fields
        before = {} if self._model is None else vars(self._model)
        values = {name: value for name, value in vars(model).items() if name in fields}
        self._shown = {
            n: self._shown[n] if n in self._shown and before[n] is v else frozen(v) for n, v in values.items()
        }
        self._model, self._document = model, replica.document
        replica.projected = self._shape, replica.document, model, self._shown
        show(self._view, model, self._shown)


def _task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:  # in a thread without an event loop
        return None


@lru_cache(maxsize=256)
def _live_kind(model: type[BaseModel]) -> type[Any]:
    """Return the class of a model's states in a turn, a subclass of it whose fields are read and set through it."""
    fields = frozenset(model.model_fields)
    read = model.__getattribute__

    def held(state: Any) -> TypedState:
        found: TypedState = object.__getattribute__(state, _HOLDER)
        return found

    def get(state: Any, name: str) -> Any:
        if name in fields:
            held(state).note_read(name)
        return read(state, name)

    def put(state: Any, name: str, value: Any) -> None:
        if name not in fields and (name.startswith("_") or isinstance(getattr_static(model, name, None), property)):
            model.__setattr__(state, name, value)
        else:
            held(state).assign(name, value)

    def drop(state: Any, name: str) -> None:  # noqa: ARG001 - the signature of a deletion
        raise InvalidInput(f"state.{name} cannot be deleted: set it to another value, such as None.")

    def item(state: Any, name: str) -> Any:
        held(state).view  # noqa: B018 - reads the newest
        if name not in fields:
            raise KeyError(name)
        return getattr(state, name)

    def equals(state: Any, other: object) -> bool:
        return bool(plain(state) == (plain(other) if type(other) is type(state) else other))

    def plain(state: Any) -> Any:
        return held(state)._model.model_copy(deep=True)

    names: dict[str, Any] = {
        "__slots__": (_HOLDER,),
        "__getattribute__": get,
        "__setattr__": put,
        "__delattr__": drop,
        "__getitem__": item,
        "__setitem__": put,
        "__eq__": equals,
        "__hash__": None,
        "__copy__": plain,
        "__deepcopy__": lambda state, _: plain(state),
    }
    return derived(model, names)
