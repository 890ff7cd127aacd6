"""The turn that follows on another: if its message is queued already, it begins in the commit that ends that one."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tenuto.model.commit import NextRun, Receipt
from tenuto.session.notices import Notice
from tenuto.session.running import running_here

if TYPE_CHECKING:
    from tenuto.session.live import LiveTurn


class Following(NamedTuple):
    """A turn that is about to begin with the commit that ends the one before it.

    `begun` puts it up once that commit stands; `notices` tell of it.
    """

    part: NextRun
    begun: "Callable[[Receipt], LiveTurn]"
    notices: Sequence[Notice]

    def drop(self) -> None:
        """Let go of it: the commit was refused, or nobody knows whether it stands."""
        running_here.discard(self.part.begin.run_id)
