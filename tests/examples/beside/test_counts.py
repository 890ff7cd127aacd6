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


def test_each_file_is_listed_and_has_a_test() -> None:
    assert {path.stem for path in APPS.glob("*.py")} == {*PAIRS, *ALONE}
    assert {path.stem for path in PEERS.glob("*.py")} == {peer for peers in PAIRS.values() for peer in peers}
    tests = ROOT / "tests" / "examples" / "beside"
    assert not [name for name in (*PAIRS, *ALONE) if not (tests / f"test_{name}.py").is_file()]
