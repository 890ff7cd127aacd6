"""The programs under `examples/apps`, those of other libraries beside them, and how each is run."""

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.examples.programs import EXAMPLES, ROOT

APPS, PEERS = EXAMPLES / "apps", EXAMPLES / "peers"

PAIRS: Mapping[str, tuple[str, ...]] = {
    "chat": ("chat_langgraph", "chat_openai_agents"),
    "flask_chat": ("flask_chat_langgraph", "flask_chat_openai_agents", "flask_chat_pydantic_ai"),
    "flow": ("flow_langgraph",),
    "support": ("support_pydantic_ai",),
}
"""The programs that other libraries have too; a file of `peers` does what the one of `apps` does, by the same test."""

ALONE = ("moved", "night", "owners", "renamed")
"""The programs that no other library has."""

LIBRARIES = {
    "langgraph": ("langgraph", "langchain_openai"),
    "openai_agents": ("agents",),
    "pydantic_ai": ("pydantic_ai",),
}

CHAT_COMPLETIONS = """
import runpy, sys
from agents import set_default_openai_api
set_default_openai_api("chat_completions")
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a program that would ask for Responses, which the scripted provider does not stream."""


def path_of(name: str) -> Path:
    """Return the file of a program."""
    return (APPS if name in PAIRS or name in ALONE else PEERS) / f"{name}.py"


def both(app: str, *needed: str) -> pytest.MarkDecorator:
    """Return the mark of a test that a program and its peers pass, where what they import is installed."""
    return pytest.mark.parametrize("name", [_param(name, app, needed) for name in (app, *PAIRS[app])])


def _param(name: str, app: str, needed: Iterable[str]) -> Any:
    library = LIBRARIES[name.removeprefix(f"{app}_")] if name != app else ()
    missing = [each for each in (*needed, *library) if find_spec(each) is None]
    marks = [pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} is not installed")]
    return pytest.param(name, marks=marks if name == app and not needed else [*marks, pytest.mark.wide])


def environment(provider: str = "") -> dict[str, str]:
    """Return the environment of a program that asks a provider at an address."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", EXAMPLES))),
        "OPENAI_BASE_URL": f"{provider}/v1",
        "OPENAI_API_KEY": "none",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
    }


def command_of(name: str | Path, *words: str) -> list[str]:
    """Return the command that runs a program, or any file."""
    if isinstance(name, Path):
        return [sys.executable, str(name), *words]
    if name.endswith("_openai_agents"):
        return [sys.executable, "-c", CHAT_COMPLETIONS, str(path_of(name)), *words]
    return [sys.executable, str(path_of(name)), *words]


def ran(name: str | Path, *words: str, folder: Path, provider: str = "", said: str = "") -> list[str]:
    """Run a program to its end and return the lines it printed."""
    done = subprocess.run(
        command_of(name, *words),
        input=said,
        cwd=folder,
        env=environment(provider),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
