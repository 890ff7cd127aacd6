"""What our own last commit left of each session, tried before reading."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from tenuto.clock import since_boot
from tenuto.errors import TenutoError
from tenuto.model.session import SessionKey
from tenuto.store.backend import Warm
from tenuto.store.rules.plan import Left, Moved, Plan, stands_on_head
from tenuto.store.rules.records import key_of

T = TypeVar("T")

_REMEMBERED = 10_000


class RowMemory:
    """A guess at what a read would find. The write's guard confirms it, and a wrong one costs a read.

    A repeat is not seen in it, but its receipt is there already and makes the write miss. The clock is the database's
    as last read, carried forward by this machine's boot clock.
    """

    def __init__(self) -> None:
        self._left: OrderedDict[SessionKey, tuple[Left, float]] = OrderedDict()

    def plan(self, warm: Warm, decide: Callable[[Any], Plan[T]]) -> Plan[T] | None:
        """Decide on what is remembered, or return None where it does not suffice."""
        left, since = self._left.pop(warm.key, (None, 0.0))
        if left is None:
            return None
        if warm.now is None:
            passed = int((since_boot() - since) * 1_000_000)
            found = left.found(left.now + passed, left.lease + passed)
        else:
            found = left.found(warm.now, warm.now)
        if warm.begins or not warm.run_id:
            found.run = None
        elif found.run is None or found.run.run_id != warm.run_id or (warm.saves and not stands_on_head(found)):
            return None
        try:
            return decide(found)
        except TenutoError:
            return None  # perhaps refused on a stale memory: look, then refuse

    def note(self, plan: Plan[Any], warm: Warm | None) -> None:
        """Take note of what landed without having been tried on the memory first, or in vain."""
        if plan.moved:
            self._follow(plan.moved)
        elif plan.after:
            self.keep(warm.key if warm else key_of(plan.after.session), plan)

    def _follow(self, moved: Moved) -> None:
        """Take note of event numbers given out here, so that the session's next commit does not miss for them.

        Only if nobody else's came between: those may be about something that is not remembered, such as a stop.
        """
        left, since = self._left.pop(moved.key, (None, 0.0))
        if left is None or (left.session.life, left.session.event_seq) != (moved.life, moved.before):
            return
        if moved.run_id is None or left.run is None or left.run.run_id != moved.run_id:
            session = left.session._replace(event_seq=moved.event_seq)
            self._left[moved.key] = (left._replace(session=session), since)

    def keep(self, key: SessionKey, plan: Plan[Any]) -> None:
        """Remember what a commit that landed left."""
        left = plan.after
        if left is None:
            return
        if left.run is not None and left.run.ended_at is not None:
            left = left._replace(run=None)  # nothing more is written for it
        self._left[key] = (left, since_boot())
        if len(self._left) > _REMEMBERED:
            self._left.popitem(last=False)
