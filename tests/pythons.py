"""Run a part of the tests on the other installed Pythons of those we support: `python -m tests.pythons`.

The Python that runs this has the whole of them. Each other one gets an environment of its own beside `.venv`.
"""

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
SUPPORTED = ((3, 11), (3, 12), (3, 13))
PART = (
    "tests/runtime",
    "tests/writing",
    "tests/graph",
    "tests/conformance/test_fixtures.py",
    "tests/store/test_contract.py",
    "tests/store/test_misuse.py",
    "tests/test_one_turn.py",
)
"""What depends most on the interpreter: its event loop, its threads and its end. All of it on SQLite."""
OPTIONS = ("-q", "-n", "2", "-p", "no:cacheprovider", "-m", "not wide and not soak", "-k", "not postgres")
STAMP = ".made-from-pyproject"


def candidates(version: tuple[int, int], environment: Mapping[str, str]) -> list[Path]:
    """Return where a Python of a version may be: under pyenv, the newest first, then on the path."""
    name = ".".join(map(str, version))
    pyenv = Path(environment.get("PYENV_ROOT") or Path(environment.get("HOME", "/")) / ".pyenv") / "versions"
    kept = sorted(pyenv.glob(f"{name}.*/bin/python{name}"), key=_patch, reverse=True)
    return [*kept, *(Path(place) / f"python{name}" for place in environment.get("PATH", "").split(os.pathsep))]


def _patch(python: Path) -> int:
    number = python.parent.parent.name.rpartition(".")[2]
    return int(number) if number.isdigit() else -1


def version_of(python: Path) -> str | None:
    """Return what a Python says it is; None if it does not run, as a shim without its version does not."""
    try:
        asked = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.strip() if asked.returncode == 0 else None


_ASK = "import platform, venv; print(platform.python_version())"


def installed(versions: Iterable[tuple[int, int]]) -> dict[str, Path]:
    """Return a Python of each of these versions that is installed, by its whole version."""
    found: dict[str, Path] = {}
    for version in versions:
        told = [(name, python) for python in candidates(version, os.environ) if (name := version_of(python))]
        found |= dict(told[:1])
    return found


def environment_of(version: str, python: Path) -> Path:
    """Return the Python of an environment with the project and its tests' tools, made anew if the project changed."""
    folder = ROOT / f".venv-{version.rpartition('.')[0]}"
    stamp, made = folder / STAMP, folder / "bin" / "python"
    if stamp.is_file() and stamp.read_text() == version and stamp.stat().st_mtime > _changed():
        return made
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    install = [str(made), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "--upgrade", "pip>=25.1"], check=True)
    subprocess.run([*install, "--editable", ".[postgres,testing,otel]", "--group", "dev"], check=True, cwd=ROOT)
    stamp.write_text(version)
    return made


def _changed() -> float:
    return (ROOT / "pyproject.toml").stat().st_mtime


def main() -> int:
    """Run the part on each other Python that there is; return how many of them failed."""
    mine = ".".join(map(str, sys.version_info[:3]))
    others = installed(version for version in SUPPORTED if version != sys.version_info[:2])
    print(f"Pythons: {', '.join(sorted([mine, *others]))}", flush=True)
    failed = []
    for version, python in others.items():
        print(f"Python {version}:", flush=True)
        made = environment_of(version, python)
        if subprocess.run([made, "-m", "pytest", *OPTIONS, *PART], check=False, cwd=ROOT).returncode != 0:
            failed.append(version)
    if failed:
        print(f"failed on Python {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
