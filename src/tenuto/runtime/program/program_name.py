"""What a program is called where it is looked up."""

from typing import Protocol, runtime_checkable

from tenuto.argument import refuse


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
