"""Every word of the specification's vocabulary is known to the adapter, where that list is at hand."""

import ast
import re
from pathlib import Path

import pytest

from tests.conformance import adapter
from tests.conformance.adapter import (
    checkpoint_checks,
    event_invariants,
    invariants,
    session_checks,
    span_invariants,
    suspension_checks,
)
from tests.conformance.adapter.loader import conformance_root
from tests.conformance.adapter.records import Structure

ADAPTER = Path(adapter.__file__).parent
NOWHERE = "the vocabulary is neither in $TENUTO_CONFORMANCE nor in ../shared/conformance"
ELSEWHERE = ("### 10.7", "### 10.8", "### 12.5", "### 12.6")
"""The sections of the harness and its chat, which this adapter does not run."""
HARNESS = {
    "chat_turns",
    "expected_listener_callback",
    "harness",
    "signal_arrivals",
    "subscribe_listener",
    "transmissions",
}
UNUSED = {"error_raiser", "state_inspector"}
"""Words that are announced there and used by no fixture."""
CONCURRENCY = ("concurrency_invariant", "max_in_flight")
"""Among the invariants there, but an expectation of its own."""


def _rows() -> list[tuple[str, str]]:
    """Return the rows of the tables, each as its section and its first cell."""
    root = conformance_root()
    if root is None or not (root / "VOCABULARY.md").is_file():
        return []
    section, rows = "", []
    for line in (root / "VOCABULARY.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            section = line
        elif line.startswith("| ") and not section.startswith(ELSEWHERE):
            rows.append((section, line.split(" | ")[0]))
    return rows


def _names(sections: tuple[str, ...]) -> list[str]:
    cells = [cell for section, cell in _rows() if section.startswith(sections)]
    spoken = [text for cell in cells for text in re.findall(r"`([^`]+)`", cell)]
    return sorted({name for text in spoken for name in re.findall(r"[A-Za-z][A-Za-z0-9_]+", text)})


WORDS = _names(("## 2", "## 3", "## 4", "### 5", "### 6", "## 7", "## 8", "## 9", "### 10"))
INVARIANTS = [name for name in _names(("### 12",)) if "_" in name and name not in CONCURRENCY]
at_hand = pytest.mark.skipif(not WORDS, reason=NOWHERE)


def _said() -> set[str]:
    """Return every text that stands in the adapter's code."""
    found: set[str] = set()
    for path in ADAPTER.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found |= {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return found


@at_hand
def test_every_directive_and_expectation_is_known() -> None:
    known = _said() | HARNESS | UNUSED
    assert [word for word in WORDS if word not in known] == []


@at_hand
def test_every_invariant_is_known() -> None:
    known = {
        *checkpoint_checks.TRUTHS,
        *checkpoint_checks.VALUES,
        *event_invariants.INVARIANTS,
        *invariants.INVARIANTS,
        *session_checks.TRUTHS,
        *span_invariants.INVARIANTS,
        *suspension_checks.TRUTHS,
    }
    patterns = [
        *checkpoint_checks.PATTERNS,
        *(pattern for pattern, _ in event_invariants.PATTERNS),
        *suspension_checks.PATTERNS,
    ]
    unknown = [name for name in INVARIANTS if name not in known and not any(re.fullmatch(p, name) for p in patterns)]
    assert unknown == []


def test_a_part_is_played_by_the_one_node_of_its_kind() -> None:
    structure = Structure(kinds={("outer", "a"): "fan_out", ("row", "b"): "fan_out", ("cell", "c"): "plain"})
    assert [structure.in_role(role) for role in ("outer_fan_out", "inner_fan_out", "leaf")] == ["a", "b", "c"]
    assert structure.in_role("dispatcher") is None
    structure.kinds["cell", "d"] = "plain"
    assert structure.in_role("leaf") is None
