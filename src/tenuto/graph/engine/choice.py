"""A conditional edge: a function of the state, and the places it may choose from if it declares them."""

from collections.abc import Callable, Iterable
from inspect import iscoroutinefunction, isfunction, ismethod
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tenuto.errors import InvalidInput
from tenuto.graph.graph_end import END, End


class Choice:
    """A conditional edge. `targets` are the only places it may lead to; None means any node, or the end."""

    __slots__ = ("choose", "targets")

    def __init__(self, source: str, choose: Callable[[Any], Any], targets: Iterable[Any] | None) -> None:
        if not callable(choose) or iscoroutinefunction(choose):
            raise InvalidInput(f"The edge after {source!r} needs a plain function of the state, got {choose!r}.")
        if isinstance(targets, str) or (targets is not None and not isinstance(targets, Iterable)):
            raise InvalidInput(f"The targets of the edge after {source!r} are a list of nodes, got {targets!r}.")
        self.choose = choose
        self.targets: tuple[Any, ...] | None = (
            _declared(choose) if targets is None else tuple(dict.fromkeys(_checked(source, targets)))
        )

    def __call__(self, state: Any) -> Any:
        """Return what follows the node: a node's name, or the end."""
        return self.choose(state)


def _checked(source: str, targets: Iterable[Any]) -> list[Any]:
    listed = list(targets)
    odd = [target for target in listed if target is not END and not isinstance(target, str)]
    if odd or not listed:
        got = repr(odd[0]) if odd else "none"
        raise InvalidInput(f"The targets of the edge after {source!r} are names of nodes, or END; got {got}.")
    return listed


def _declared(choose: Callable[[Any], Any]) -> tuple[Any, ...] | None:
    """Return the targets a function declares by its return type: `Literal` names, perhaps with END's class."""
    annotated = choose if isfunction(choose) or ismethod(choose) else type(choose).__call__
    try:
        returned = get_type_hints(annotated).get("return")
    except Exception:  # annotations are the caller's own; one that cannot be read declares nothing
        return None
    targets: list[Any] = []
    for part in get_args(returned) if get_origin(returned) in (Union, UnionType) else (returned,):
        if get_origin(part) is Literal and all(isinstance(name, str) for name in get_args(part)):
            targets += get_args(part)
        elif part is End:
            targets.append(END)
        else:
            return None
    return tuple(dict.fromkeys(targets))
