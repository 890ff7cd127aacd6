"""The list of examples is true: a program that runs has a test, and one that is planned fits the planned signatures."""

import tomllib
from pathlib import Path

import pytest

from tests.checkers import mypy
from tests.examples.programs import EXAMPLES, LIST, NOT_YET, NOWHERE, PLANNED, ROOT, RUNS, stubs

FACE = stubs()
ANYTHING = "from typing import Any\ndef __getattr__(name: str) -> Any: ...\n"
RUNNING = [each for each in LIST if each.due is RUNS]


def test_the_list_has_every_file_and_no_other() -> None:
    files = {path for folder in (EXAMPLES, PLANNED) for path in folder.iterdir() if path.suffix in {".py", ".sh"}}
    assert sorted(each.path for each in LIST) == sorted(files)


def test_a_program_that_runs_has_a_test_that_runs_it() -> None:
    assert not [each.test for each in RUNNING if not each.test.is_file()]


def test_programs_that_run_are_checked_with_the_source() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert ("examples" in settings["files"]) == any(each.path.suffix == ".py" for each in RUNNING)
    assert "examples" in settings["mypy_path"].split(":")
    assert settings["strict"]


@pytest.mark.skipif(FACE is None, reason=NOWHERE)
@pytest.mark.long("mypy reads the planned signatures")
def test_planned_programs_fit_the_planned_signatures(tmp_path: Path) -> None:
    """Whether the libraries of other people are installed makes no difference: each stands for anything."""
    planned = [each.path for each in LIST if each.due is NOT_YET and each.path.suffix == ".py"]
    for module in ("openai/types/chat", "openai/types/responses", "anthropic/types", "pydantic_ai"):
        for folder in (tmp_path / module, *(tmp_path / module).parents):
            if folder.is_relative_to(tmp_path) and folder != tmp_path:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "__init__.pyi").write_text(ANYTHING)
    assert FACE is not None
    found = mypy(planned, [FACE, PLANNED, tmp_path], cache="planned")
    assert not found, "\n".join(found)


def test_a_file_of_commands_calls_tenuto_alone() -> None:
    texts = [each.path.read_text() for each in LIST if each.path.suffix == ".sh"]
    commands = [line.split() for text in texts for line in text.replace(" && ", "\n").splitlines()]
    assert {words[0] for words in commands} == {"tenuto"}
