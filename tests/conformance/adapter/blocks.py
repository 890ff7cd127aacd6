"""Checking blocks of expectations: an `expected` by itself, or all that a case or an invocation says of one run."""

from typing import Any

from tests.conformance.adapter.checks import Check
from tests.conformance.adapter.errors import check_error
from tests.conformance.adapter.expectations import EXPECTATIONS
from tests.conformance.adapter.span_checks import must_fail
from tests.conformance.adapter.vocabulary import DirectiveUnknown, mapping

RESTATING = ("invariants", "observer_event_invariants")
"""Blocks that ask what the others came to."""
OF_A_PAUSE = ("descriptor", "outcome", "suspended_state", "suspending_node")


async def check_block(block: dict[str, Any], check: Check) -> None:
    """Check everything a block expects of the run, its invariants last; a name that is not known is a failure."""
    for name, expected in sorted(block.items(), key=lambda entry: entry[0] in RESTATING):
        if name not in EXPECTATIONS:
            raise DirectiveUnknown(f"expectation {name}")
        problems = len(check.problems)
        waiting = EXPECTATIONS[name](expected, check)
        if waiting is not None:
            await waiting
        if name != "expected_error":
            check.note(name, problems)


async def check_case(spec: dict[str, Any], check: Check) -> None:
    """Check how the run ended, what is expected of it, and the invariants beside that."""
    expected = mapping(spec.get("expected") or {}, "expected")
    check_ending(spec.get("expected_error") or expected.get("expected_error"), expected, check)
    await check_block(expected, check)
    if "invariants" in spec:
        await check_block({"invariants": spec["invariants"]}, check)


def check_ending(wanted: Any, expected: dict[str, Any], check: Check) -> None:
    """Check the run's error, and that it is not suspended unless that is said; `outcome` says it all by itself."""
    if wanted is not None or "outcome" not in expected:
        if wanted is None and must_fail(expected):
            check.holds("the run completed, though its spans are to end in an error", check.run.error is not None)
        else:
            check_error(wanted, check)
    if not any(word in expected for word in OF_A_PAUSE):
        check.holds("the run is suspended, which nothing expects", not check.run.suspended)
