"""The type checkers, run as a reader of the documents would run them on files of their own."""

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent


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
