"""Running commands, and the databases they work on."""

import json
from dataclasses import dataclass, field
from typing import Any

from typer.testing import CliRunner

from tenuto import open_store
from tenuto.cli.app import app
from tenuto.store.open import Opening


@dataclass(frozen=True)
class Place:
    """A database that commands and the test both open."""

    url: str
    options: dict[str, Any] = field(default_factory=dict)

    def open(self) -> Opening:
        return open_store(self.url, **self.options)

    @property
    def arguments(self) -> list[str]:
        return ["--store", self.url, *(part for name, value in self.options.items() for part in (f"--{name}", value))]


async def make(place: Place) -> None:
    """Make the tables."""
    async with place.open():
        pass


def tenuto(*arguments: str) -> tuple[int, str, str]:
    """Run a command in this process; return its exit code, its output, and its errors in one line, without boxes."""
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, " ".join(result.stderr.replace("│", " ").split())


def reported(*arguments: str) -> Any:
    """Run a command that succeeds; return what it prints with `--json`."""
    code, out, err = tenuto(*arguments, "--json")
    assert (code, err) == (0, ""), out
    return json.loads(out)


def refused(*arguments: str) -> tuple[int, str, str]:
    """Run a command that fails; return its exit code, and the category and the message it prints with `--json`."""
    code, out, err = tenuto(*arguments, "--json")
    assert err == ""
    (name, error), *others = json.loads(out).items()
    assert (name, others) == ("error", [])
    return code, error["category"], error["message"]
