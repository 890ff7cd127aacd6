"""Finding the other Pythons that the tests run on."""

import sys
from pathlib import Path

from tests.pythons import candidates, version_of


def test_the_newest_under_pyenv_comes_first_and_then_the_path(tmp_path: Path) -> None:
    for patch in (2, 10, 9):
        folder = tmp_path / "versions" / f"3.12.{patch}" / "bin"
        folder.mkdir(parents=True)
        (folder / "python3.12").touch()
    found = candidates((3, 12), {"PYENV_ROOT": str(tmp_path), "PATH": "/one:/two"})
    assert [path.parent.parent.name for path in found[:3]] == ["3.12.10", "3.12.9", "3.12.2"]
    assert found[3:] == [Path("/one/python3.12"), Path("/two/python3.12")]


def test_what_does_not_run_is_no_python(tmp_path: Path) -> None:
    broken = tmp_path / "python3.12"
    assert version_of(broken) is None
    broken.write_text("#!/bin/sh\necho 'not installed' >&2\nexit 127\n")
    broken.chmod(0o755)
    assert version_of(broken) is None
    assert version_of(Path(sys.executable)) == ".".join(map(str, sys.version_info[:3]))
