"""Where a graph ends."""

from typing import final


@final
class End:
    """The class of END, for the return type of a conditional edge; not a text, so that a node may be called "END"."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "END"

    def __reduce__(self) -> str:
        return "END"  # a copy is the same object


END = End()
