"""The type checkers, run as a reader of the documents would run them on files of their own."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"

OLDEST = "3.11"
"""The oldest Python that the project supports."""


def mypy(files: Sequence[Path], search: Iterable[Path], *, cache: str | None = None) -> list[str]:
    """Return what mypy finds in files, with the project's strict settings, as `file:line: message` lines.

    Modules are looked for in the folders of `search` first. `cache` names what is kept for the next run, and is used by
    one run at a time.
    """
    path = os.pathsep.join(map(str, search))
    kept = ROOT / ".mypy_cache" / cache if cache else os.devnull
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", str(kept), *map(str, files)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    found = [line for line in done.stdout.splitlines() if ": note: " not in line]
    assert done.returncode == (1 if found else 0), done.stdout + done.stderr
    return found


def pyright(files: Sequence[Path], search: Iterable[Path], folder: Path) -> list[str]:
    """Return what strict pyright finds in files, as `file:line: message` lines; `folder` takes its settings."""
    settings = {
        "include": [str(file) for file in files],
        "extraPaths": [*map(str, search), str(SOURCE)],
        "typeCheckingMode": "strict",
        "pythonVersion": OLDEST,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "-p", str(folder), "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(files)
    return [_line(each) for each in report["generalDiagnostics"] if each["severity"] == "error"]


def _line(diagnostic: dict[str, object]) -> str:
    place, message = diagnostic["range"], re.sub(r"\s+", " ", str(diagnostic["message"]))
    assert isinstance(place, dict)
    return f"{diagnostic['file']}:{place['start']['line'] + 1}: {message} ({diagnostic.get('rule', 'syntax')})"
