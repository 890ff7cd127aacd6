"""Research in rounds, and a person who decides: begun, listed, and answered in processes of their own."""

from pathlib import Path

import pytest

from tests.examples.beside.pairs import both, ran

pytestmark = pytest.mark.long("each command is a process of its own")


@both("flow")
def test_a_person_decides_in_another_process_once(name: str, tmp_path: Path) -> None:
    def run(*words: str) -> list[str]:
        return ran(name, *words, folder=tmp_path)

    assert run("start") == ["suspended"]
    ((wait, notes),) = [line.split() for line in run("list")]
    assert notes == "6"
    assert run("answer", wait, "yes") == ["['report of 6 notes']"]
    assert run("answer", wait, "no") == ["answered before"]


@pytest.mark.wide
@both("flow")
def test_each_run_has_notes_and_a_question_of_its_own(name: str, tmp_path: Path) -> None:
    def run(*words: str) -> list[str]:
        return ran(name, *words, folder=tmp_path)

    waits: list[str] = []
    for word in ("yes", "no", "yes"):
        assert run("start") == ["suspended"]
        ((wait, notes),) = [line.split() for line in run("list")]
        assert notes == "6"
        printed = run("answer", wait, word)
        waits.append(wait)
    assert printed == ["['report of 6 notes', 'report of 6 notes']"]
    assert len(set(waits)) == 3
    assert run("list") == []
