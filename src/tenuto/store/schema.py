"""Migrations of our own tables, for deployments that do not let a program change its schema by itself."""

from dataclasses import dataclass
from typing import Any

from tenuto.errors import InvalidInput
from tenuto.store.open import open_store
from tenuto.store.schemes import scheme_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationReport:
    """Which version the tables have, which this code needs, and the SQL of the steps between."""

    found: int
    expected: int
    pending: tuple[str, ...]
    sql: str

    @property
    def ready(self) -> bool:
        """Whether this code can open the store without a migration."""
        return self.found == self.expected


async def migrate(url: str, mode: str = "apply", **options: Any) -> MigrationReport:
    """Bring a store's tables up to date (`apply`), or only say what is to do (`check`; `print` adds the SQL).

    Only `apply` changes anything. The report describes the store before. Tables newer than this code are
    `SchemaMismatch`.
    """
    if mode not in {"apply", "check", "print"}:
        raise InvalidInput(f"Unknown mode {mode!r}; use apply, check or print.", mode=mode)
    steps, found = await scheme_of(url).version(url, options)
    report = MigrationReport(
        found=found,
        expected=len(steps),
        pending=tuple(step.name for step in steps[found:]),
        sql="" if mode == "check" else "\n".join(f"-- {step.name}\n{step.sql}" for step in steps[found:]),
    )
    if mode == "apply" and not report.ready:
        async with open_store(url, **options):
            pass
    return report
