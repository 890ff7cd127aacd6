"""What is not run yet, and why: known words of the vocabulary whose part of the engine does not exist.

A case that uses one of these is counted and printed as "not run yet". Take a name out the day the engine has it; the
adapter must then learn it, since an unknown name is a failure.
"""

from typing import Any

_CHECKPOINTS = "the engine has no checkpoints, resume or state migrations yet"

NOT_RUN_YET: dict[str, str] = {
    "checkpointer": _CHECKPOINTS,
    "crash_injection": _CHECKPOINTS,
    "every_save_assertions": _CHECKPOINTS,
    "expected_chain_ambiguity_error": _CHECKPOINTS,
    "first_run_expected_error": _CHECKPOINTS,
    "migrations": _CHECKPOINTS,
    "populate_checkpointer_via_runs": _CHECKPOINTS,
    "resume": _CHECKPOINTS,
    "resume_invocation": _CHECKPOINTS,
    "runtime_state_subclass": _CHECKPOINTS,
    "saved_record_assertions": _CHECKPOINTS,
    "seeded_record": _CHECKPOINTS,
}


def not_run_yet(case: dict[str, Any]) -> str | None:
    """Return why a case is not run yet, naming what it needs; None if it can be run."""
    asked = case | _inside(case, "invoke") | _inside(case, "invoke_with")
    needed = [name for name in NOT_RUN_YET if name in asked]
    return f"needs {', '.join(needed)}: {NOT_RUN_YET[needed[0]]}" if needed else None


def _inside(case: dict[str, Any], key: str) -> dict[str, Any]:
    found = case.get(key)
    return found if isinstance(found, dict) else {}
