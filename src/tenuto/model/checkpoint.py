"""Checkpoints: the points a run can be resumed from."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from tenuto.codec import JSON
from tenuto.model.session import Ends, SessionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A point a run can go on from: cursor, document, and the logs as they ended there."""

    key: SessionKey
    commit_number: int
    run_id: str | None
    step: int
    cursor: JSON
    document: Mapping[str, JSON]
    ends: Ends
    schema_version: str
    created_at: datetime
