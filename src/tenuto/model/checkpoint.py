"""Checkpoints: the points a run can be resumed from."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from tenuto.codec import JSON
from tenuto.model.session import Ends, SessionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A point that a run can be resumed from: cursor, document, and the ends of the logs at that point."""

    key: SessionKey
    commit_number: int
    run_id: str | None
    step: int
    cursor: JSON
    document: Mapping[str, JSON]
    ends: Ends
    schema_version: str
    created_at: datetime
