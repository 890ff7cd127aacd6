import json

import pytest
from demos.show import Claim, Demonstration, Row, present

pytestmark = pytest.mark.wide


def shown(*, holds: bool) -> Demonstration:
    return Demonstration(
        name="race",
        title="five at once",
        rows=(Row(what="kept", tenuto="5 of 5", langgraph="1 of 5"),),
        claims=(Claim(text="all are kept", holds=True), Claim(text="in order", holds=holds)),
        tenuto={"kept": 5},
        langgraph={"kept": 1},
    )


@pytest.mark.parametrize(("holds", "code"), [(True, 0), (False, 1)])
@pytest.mark.parametrize("as_json", [True, False])
def test_it_succeeds_only_if_every_claim_holds(holds: bool, code: int, as_json: bool) -> None:
    assert present(shown(holds=holds), as_json=as_json) == code


def test_the_table_has_both_sides_and_every_claim(capsys: pytest.CaptureFixture[str]) -> None:
    present(shown(holds=False), as_json=False)
    said = capsys.readouterr().out
    for part in (
        "five at once",
        "5 of 5",
        "1 of 5",
        "holds  all are kept",
        "does not hold  in order",
        "LangGraph 1.2.",
    ):
        assert part in said


def test_the_json_has_the_figures_and_the_versions(capsys: pytest.CaptureFixture[str]) -> None:
    present(shown(holds=True), as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert (said["tenuto"], said["langgraph"], said["holds"]) == ({"kept": 5}, {"kept": 1}, True)
    assert {"tenuto", "langgraph", "langgraph-checkpoint-sqlite", "aiosqlite"} <= said["versions"].keys()
