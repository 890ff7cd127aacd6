"""The command line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tenuto.cli.app import app

MODULE = """
from tenuto.graph import END, GraphBuilder, State

class S(State):
    n: int = 0

async def up(state):
    return {"n": state.n + 1}

graph = GraphBuilder(S, "counter").add_node("up", up).add_edge("up", END).set_entry("up").compile()
other = 3
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shown_graph.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)


def test_a_graph_is_shown_as_mermaid_and_as_json() -> None:
    shown = CliRunner().invoke(app, ["graph", "show", "shown_graph:graph"])
    assert (shown.exit_code, shown.output.splitlines()[0]) == (0, "flowchart TD")
    told = CliRunner().invoke(app, ["graph", "show", "shown_graph:graph", "--json"])
    assert json.loads(told.output) == {"name": "counter", "entry": "up", "nodes": ["up"], "edges": {"up": "END"}}


@pytest.mark.parametrize("place", ["shown_graph", "nowhere:graph", "shown_graph:other", "shown_graph:missing"])
def test_a_place_without_a_graph_is_refused_with_a_reason(place: str) -> None:
    refused = CliRunner().invoke(app, ["graph", "show", place])
    assert refused.exit_code == 2
    assert "Traceback" not in refused.output
