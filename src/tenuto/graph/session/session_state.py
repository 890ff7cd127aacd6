"""The part of a graph's state that is kept between turns."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class SessionState(BaseModel):
    """Names the fields of a graph's state that are kept between turns; all others are scratch.

    A field is the state's field of the same name, unless the builder is given a mapping. Its reducer, type and default
    are those the state declares. `schema_version` is the version session records are kept under.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    schema_version: ClassVar[str] = ""
