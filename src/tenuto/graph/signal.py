"""What a suspended run waits for, and where its answer can be sent."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tenuto.codec import JSON, encode
from tenuto.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class SignalDescriptor:
    """What a suspended run waits for, in the program's own words; metadata is for whoever answers."""

    signal_id: str
    metadata: Mapping[str, JSON] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.signal_id, str) or not self.signal_id:
            raise InvalidInput(f"A signal needs an id, got {self.signal_id!r}.")
        object.__setattr__(self, "metadata", dict(self.metadata or {}))
        encode(self.metadata)

    def with_metadata(self, **values: JSON) -> "SignalDescriptor":
        """Return the descriptor with metadata added under names it does not use yet."""
        return replace(self, metadata={**values, **self.metadata})


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """Where an answer can be sent, and the token that authorizes it; provided by the door the run came through."""

    url: str
    token: str


CallbackMaker = Callable[[str, str], Callback]
"""Makes the callback of an invocation's signal, from invocation id and signal id."""
