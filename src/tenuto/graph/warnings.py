"""Warnings of the compiler: the graph works, but perhaps not as meant."""


class GraphCompileWarning(UserWarning):
    """A graph was compiled that may not do what it seems to; `category` says why."""

    def __init__(self, category: str, message: str) -> None:
        super().__init__(message)
        self.category = category


class SessionStateDoubled(UserWarning):
    """The caller gave a session what it has already, in a field that is appended to."""
