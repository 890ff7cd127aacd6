"""Going back: a session as it was at a checkpoint, without copying or losing what came after it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tenuto.codec import JSON
from tenuto.model.run import Checkpoint
from tenuto.session.pending import Pending
from tenuto.session.value import Session


@dataclass(frozen=True, slots=True)
class GoBack:
    """The action that makes a session what it was at a checkpoint; its logs go on from there on new branches."""

    point: Checkpoint

    async def apply(self, session: Session) -> Session:
        """See `Action.apply`."""
        positions = {name: end.position for name, end in self.point.ends.items()}
        logs = {name: items[: positions.get(name, 0)] for name, items in session.logs.items()}
        document = {name: _same(session.document.get(name), value) for name, value in self.point.document.items()}
        return replace(session, document=MappingProxyType(document), logs=MappingProxyType(logs))


def rewind(pending: Pending, point: Checkpoint) -> None:
    """Take a turn's session back to a checkpoint, as part of what it writes next."""
    copy, document = pending.copy, point.document
    pending.document |= {n: v for n, v in document.items() if n not in copy.document or copy.document[n] != v}
    pending.removed |= copy.document.keys() - document.keys()
    copy.document = dict(document)
    positions: Mapping[str, int] = {name: end.position for name, end in point.ends.items()}
    for name, items in list(copy.logs.items()):
        kept = positions.get(name, 0)
        if len(items) != kept:
            pending.begin_anew(name, kept=kept)


def _same(found: JSON, value: JSON) -> JSON:
    return found if found == value else value
