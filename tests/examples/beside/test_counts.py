"""What each library makes an author write for the same: counted without blank lines and imports."""

import pytest
from tools.count_lines import count_lines

from tests.examples.beside.pairs import ALONE, APPS, PAIRS, PEERS, path_of
from tests.examples.programs import ROOT


def lines(name: str) -> int:
    return count_lines(path_of(name).read_text())


@pytest.mark.parametrize(("app", "peer"), [(app, peer) for app, peers in PAIRS.items() for peer in peers])
def test_a_program_is_shorter_than_the_same_of_others(app: str, peer: str) -> None:
    assert lines(app) < lines(peer)


def test_the_page_has_the_counts() -> None:
    page = (ROOT / "docs" / "demos.md").read_text()
    assert "| program | Tenuto | LangGraph | OpenAI Agents SDK | Pydantic AI |" in page.splitlines()
    libraries = ("", "langgraph", "openai_agents", "pydantic_ai")
    for app, peers in PAIRS.items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{app}`:")]
        names = [f"{app}_{library}" if library else app for library in libraries]
        wanted = [str(lines(name)) if name in (app, *peers) else "" for name in names]
        assert [cell.strip() for cell in row.split("|")[2:-1]] == wanted


def test_each_file_is_listed_and_has_a_test() -> None:
    assert {path.stem for path in APPS.glob("*.py")} == {*PAIRS, *ALONE}
    assert {path.stem for path in PEERS.glob("*.py")} == {peer for peers in PAIRS.values() for peer in peers}
    tests = ROOT / "tests" / "examples" / "beside"
    assert not [name for name in (*PAIRS, *ALONE) if not (tests / f"test_{name}.py").is_file()]
