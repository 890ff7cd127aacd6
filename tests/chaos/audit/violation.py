"""What an audit finds."""

from typing import NamedTuple


class Violation(NamedTuple):
    """A law that was broken: which, in which session, how, and what shows it."""

    law: str
    session: str
    what: str
    evidence: str = ""

    def __str__(self) -> str:
        shown = f"\n      {self.evidence}" if self.evidence else ""
        return f"[{self.law}] {self.session}: {self.what}{shown}"
