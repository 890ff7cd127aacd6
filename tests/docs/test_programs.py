"""The documents are true: every program of the README and the guides runs, and prints what its page says."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tools.count_lines import count_lines

from tests.docs.pages import MODULES, ROOT, Module, environment, write

OF_PYTEST = {"conftest": "tests/example_backend/test_guide.py", "test_contract": "tests/example_backend/test_guide.py"}
"""Files that pytest reads, and the test that lets it."""

KILLED = "order"
"""The file whose first run kills itself in the middle of a turn, and whose second run finishes that turn."""

PROGRAMS = [module for module in MODULES if module.name not in (*OF_PYTEST, KILLED)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    write(folder)
    return folder


def run(module: Module, files: Path, folder: Path, *, ends_with: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-u", "-W", "error", str(files / f"{module.name}.py")],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == ends_with, done.stderr.replace(str(files / f"{module.name}.py"), str(ROOT / module.page))
    return done.stdout


@pytest.mark.parametrize("module", PROGRAMS, ids=[f"{module.page}:{module.name}" for module in PROGRAMS])
def test_a_program_of_a_page_runs(module: Module, written: Path, tmp_path: Path) -> None:
    printed = run(module, written, tmp_path)
    assert module.output is None or printed == module.output


def test_the_first_agent_of_the_readme_has_fifteen_lines_or_fewer() -> None:
    first = next(module for module in PROGRAMS if module.page == "README.md")
    assert 0 < count_lines(first.code) <= 15
    imported = {line.split()[1].partition(".")[0] for line in first.lines if line.startswith(("import ", "from "))}
    assert imported - sys.stdlib_module_names == {"tenuto"}
    assert count_lines((ROOT / "examples" / "a_chat.py").read_text()) <= count_lines(first.code)


@pytest.mark.parametrize(
    "module", [module for module in PROGRAMS if module.page == "README.md"], ids=lambda each: each.name
)
def test_what_a_newcomer_copies_runs_again_beside_what_it_has_made(
    module: Module, written: Path, tmp_path: Path
) -> None:
    run(module, written, tmp_path)
    made = sorted(tmp_path.iterdir())
    assert made
    run(module, written, tmp_path)
    assert sorted(tmp_path.iterdir()) == made


@pytest.mark.long("three processes begin, one after the other")
def test_a_turn_whose_process_is_killed_is_finished_by_the_next_run(written: Path, tmp_path: Path) -> None:
    (module,) = (module for module in MODULES if module.name == KILLED)
    until_killed, afterwards = module.printed
    assert run(module, written, tmp_path, ends_with=-signal.SIGKILL) == until_killed
    assert run(module, written, tmp_path) == afterwards
    assert run(module, written, tmp_path) == afterwards


def test_the_files_that_pytest_reads_are_run_elsewhere() -> None:
    read = {module.name for module in MODULES if module.name == "conftest" or module.name.startswith("test_")}
    assert read == OF_PYTEST.keys()
    assert all((ROOT / path).is_file() for path in OF_PYTEST.values())
