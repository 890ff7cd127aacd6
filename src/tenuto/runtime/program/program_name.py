"""What a program is called where it is looked up."""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from tenuto.argument import check_items, refuse
from tenuto.errors import InvalidInput
from tenuto.quote import quote


@runtime_checkable
class Named(Protocol):
    """A program, by its name and version."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def version(self) -> str:
        """Its version."""
        ...


def full_name(program: str | Named) -> str:
    """Return what a program is called where it is looked up: the text given, or `name@version`."""
    if isinstance(program, str):
        return program
    if not isinstance(program, Named):
        refuse("program", "a program or its name", program)
    return f"{program.name}@{program.version}"


def version_text(given: object) -> str:
    """Return a version, a text or a number, as text."""
    if isinstance(given, bool) or not isinstance(given, str | int) or given == "":
        raise InvalidInput(f"A program needs a name and a version, a text or a number, got {quote(given)}.")
    return str(given)


def accepted_versions(given: Iterable[str | int]) -> frozenset[str]:
    """Return the versions that a program accepts, as texts."""
    return frozenset(version_text(each) for each in check_items(given, "accepts"))
