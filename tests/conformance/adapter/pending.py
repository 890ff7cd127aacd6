"""What is not run yet, and why: known words of the vocabulary whose part of the engine does not exist.

A case that uses one of these, with a value that is not empty, is counted and printed as "not run yet". Take a name out
the day the engine has it; the adapter must then learn it, since an unknown name is a failure.
"""

from typing import Any

NOT_RUN_YET: dict[str, str] = {}


def not_run_yet(case: dict[str, Any]) -> str | None:
    """Return why a case is not run yet, naming what it needs; None if it can be run."""
    needed = [name for name in NOT_RUN_YET if _uses(case, name)]
    return f"needs {', '.join(needed)}: {NOT_RUN_YET[needed[0]]}" if needed else None


def _uses(spec: Any, name: str) -> bool:
    if isinstance(spec, dict):
        return bool(spec.get(name)) or any(_uses(value, name) for value in spec.values())
    return isinstance(spec, list) and any(_uses(each, name) for each in spec)
