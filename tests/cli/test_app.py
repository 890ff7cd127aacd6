"""The command line as a whole: graphs are shown, errors have one form, shells can complete it."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tenuto.cli.app import app
from tests.cli.commands import refused, reported, tenuto

pytestmark = pytest.mark.long("it starts processes")

MODULE = """
from tenuto import SessionRuntime, program
from tenuto.graph import END, GraphBuilder, State

class S(State):
    n: int = 0

async def up(state):
    return {"n": state.n + 1}

graph = GraphBuilder(S, "counter").add_node("up", up).add_edge("up", END).set_entry("up").compile()
@program
async def desk(turn): ...

runtime = SessionRuntime("sqlite:///shown.db", desk)
other = 3
"""


@pytest.fixture(autouse=True)
def module(folder: Path) -> None:
    (folder / "shown_graph.py").write_text(MODULE)


def test_a_graph_is_shown_as_mermaid_and_as_json() -> None:
    code, out, _ = tenuto("graph", "show", "shown_graph:graph")
    assert (code, out.splitlines()[0]) == (0, "flowchart TD")
    told = reported("graph", "show", "shown_graph:graph")
    assert told == {"name": "counter", "entry": "up", "nodes": ["up"], "edges": {"up": "END"}}


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("shown_graph", "does not have the form module:name"),
        ("nowhere:graph", "'nowhere' cannot be imported"),
        ("shown_graph:other", "'other' in 'shown_graph' is not a compiled graph"),
        ("shown_graph:missing", "'shown_graph' has no 'missing'"),
    ],
)
def test_a_place_without_a_graph_is_refused_with_a_reason(place: str, said: str) -> None:
    code, out, err = tenuto("graph", "show", place)
    assert (code, out) == (2, "")
    assert said in err


NOWHERE = ("--store", "sqlite:///nowhere.db")


@pytest.mark.parametrize(
    ("arguments", "category", "said"),
    [
        (("session", "list", *NOWHERE), "store_unusable", "There is no file 'nowhere.db'."),
        (("session", "list", "--store", "mysql://host"), "store_unusable", "'mysql://host' is not a store address"),
        (("session", "list"), "invalid_input", "Missing option '--store'"),
        (("session", "list", *NOWHERE, "--status", "odd"), "invalid_input", "'odd' is not one of"),
        (("session", "list", *NOWHERE, "--limit", "many"), "invalid_input", "Invalid value for '--limit'"),
        (("session", "list", *NOWHERE, "--odd"), "invalid_input", "No such option: --odd"),
        (("session", "answer", "w", "{", *NOWHERE), "invalid_input", "the answer '{' is not JSON"),
        (("session", "odd"), "invalid_input", "No such command 'odd'."),
        (("state", "check", "shown_graph:graph", *NOWHERE), "store_unusable", "There is no file 'nowhere.db'."),
        (("state", "migrate", "nowhere:graph", *NOWHERE), "invalid_input", "'nowhere' cannot be imported"),
        (("graph", "show", "shown_graph:missing"), "invalid_input", "'shown_graph' has no 'missing'."),
        (("worker", "shown_graph:runtime", *NOWHERE), "store_unusable", "There is no file 'nowhere.db'."),
        (("worker", "shown_graph:graph"), "invalid_input", "'shown_graph:graph' is not a SessionRuntime"),
    ],
)
def test_an_error_is_printed_for_people_or_as_json_and_not_both(
    folder: Path, arguments: tuple[str, ...], category: str, said: str
) -> None:
    code, out, err = tenuto(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err
    code, told, message = refused(*arguments)
    assert (code, told) == (2, category)
    assert said in message
    assert not (folder / "nowhere.db").exists()


def python(*arguments: str, **environment: str) -> str:
    """Return what a command prints in a process of its own."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_version_is_that_of_the_package() -> None:
    told = f"tenuto {version('tenuto')}\n"
    assert tenuto("--version") == (0, told, "")
    assert python("-m", "tenuto", "--version") == told


def test_the_module_is_the_same_command_line() -> None:
    shown = python("-m", "tenuto", "graph", "show", "shown_graph:graph")
    assert shown == tenuto("graph", "show", "shown_graph:graph")[1]
    assert "Usage: tenuto [OPTIONS] COMMAND" in python("-m", "tenuto", "--help")


def test_without_a_command_there_is_help() -> None:
    shown = CliRunner().invoke(app, [])
    for name in ("graph", "state", "session", "worker"):
        assert f" {name} " in shown.output


SHELL = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
"""The shell is then the option's value, instead of the one the tests happen to be run from."""


def test_a_shell_can_complete_it(tmp_path: Path) -> None:
    script = python("-m", "tenuto", "--show-completion", "bash", **SHELL)
    assert "_TENUTO_COMPLETE=complete_bash" in script
    python("-m", "tenuto", "--install-completion", "bash", HOME=str(tmp_path), **SHELL)
    assert (tmp_path / ".bash_completions" / "tenuto.sh").read_text().strip() == script.strip()
    assert "tenuto.sh" in (tmp_path / ".bashrc").read_text()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("tenuto wor", ["worker"]),
        ("tenuto s", ["schedule", "session", "state"]),
        ("tenuto session s", ["show", "stop"]),
        ("tenuto session list --af", ["--after"]),
        ("tenuto session stop x --kind a", ["abort"]),
    ],
)
def test_what_was_begun_is_completed(typed: str, offered: list[str]) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    found = python("-m", "tenuto", _TENUTO_COMPLETE="complete_bash", **words)
    assert sorted(found.split()) == offered
