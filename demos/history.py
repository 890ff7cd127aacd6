"""What a conversation looks like from outside, in the same words for both sides."""

from collections.abc import Sequence
from typing import NotRequired

from typing_extensions import TypedDict


class Said(TypedDict):
    """One message."""

    role: str
    text: str
    calls: NotRequired[list[str]]
    answers: NotRequired[str]


def flaws(history: Sequence[Said]) -> list[str]:
    """Return what a model's provider would refuse: a tool call without its result, or a result nobody asked for."""
    found = []
    owed: set[str] = set()
    for said in history:
        if said["role"] == "tool":
            call = said.get("answers", "")
            if call not in owed:
                found.append(f"a result for {call}, which was not called")
            owed.discard(call)
            continue
        found += [f"{call} was called and never answered" for call in sorted(owed)]
        owed = set(said.get("calls", []))
    return found + [f"{call} was called and never answered" for call in sorted(owed)]


def told(history: Sequence[Said]) -> str:
    """Return it on one line."""
    return " · ".join(_short(said) for said in history)


def _short(said: Said) -> str:
    if said.get("calls"):
        return f"{said['role']}: (calls {', '.join(said['calls'])})"
    return f"{said['role']}: {said['text']}"
