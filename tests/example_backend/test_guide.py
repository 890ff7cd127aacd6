"""docs/backends.md tells the truth: its files, beside a backend, run the contract as a project by itself."""

import shutil
import subprocess
import sys
from pathlib import Path

from tenuto.testing.harness import Capability
from tests.docs.pages import MODULES, environment
from tests.example_backend import small_backend

GUIDE = Path(__file__).parents[2] / "docs" / "backends.md"
CHOSEN = "20_tasks or vacuum or equal_age or a_failure_at_any_statement_of_a_commit"


def test_the_guides_files_run_the_contract_on_a_backend_of_ones_own(tmp_path: Path) -> None:
    files = {module.name: module.code for module in MODULES if module.page == "docs/backends.md"}
    for name in ("conftest", "test_contract"):
        (tmp_path / f"{name}.py").write_text(files[name])
    shutil.copy(small_backend.__file__, tmp_path / "my_backend.py")
    options = ["-q", "-rs", "-W", "error", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "-k", CHOSEN]
    options += ["-o", "asyncio_default_fixture_loop_scope=function", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed, 1 skipped" in done.stdout
    assert "lacks the capability DAMAGE_SQL" in done.stdout


def test_the_guide_names_every_verb_and_capability() -> None:
    text = GUIDE.read_text()
    verbs = [name for name, verb in vars(small_backend.SmallBackend).items() if callable(verb) and name[0] != "_"]
    assert [verb for verb in verbs if f"`{verb}(" not in text] == []
    assert [each for each in Capability if f"| `{each.name}` |" not in text] == []
