"""Usage: what model calls cost, as a ledger that counts a repeated call once."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """Tokens, as the provider counts them."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewUsage(TokenCounts):
    """The tokens of one call."""

    model: str
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotals(TokenCounts):
    """Sums over some calls."""

    calls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """The sums in total, by model and by source (empty where none was named), and the number of sessions they cover."""

    total: UsageTotals
    by_model: Mapping[str, UsageTotals]
    by_source: Mapping[str, UsageTotals]
    sessions: int
