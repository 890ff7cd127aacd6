"""Handles of big values: a value that is the same object as last time is written as its handle, which costs nothing."""

from collections.abc import Mapping
from typing import Any

from tenuto.codec import JSON
from tenuto.model.commit import Held
from tenuto.store.bounds import handle_of


class HeldValues(dict[str, tuple[JSON, Held]]):
    """The big document values that a run has written, and their handles, by field name."""

    __slots__ = ()

    def short(self, document: Mapping[str, JSON]) -> dict[str, Any]:
        """Return a document with handles in place of values that the store already holds."""
        held = {name: self[name][1] for name, value in document.items() if name in self and self[name][0] is value}
        return {**document, **held}

    def remember(self, document: Mapping[str, JSON]) -> None:
        """Note that a document has been stored."""
        for name, value in document.items():
            known = self.get(name)
            if known and known[0] is value:
                continue
            if isinstance(value, str | list | dict) and (handle := handle_of(value)):
                self[name] = (value, handle)
