"""The rule of collection: what of a family of forks nobody reaches, and since when.

A family is a session and everything forked from it, however far: lineages never leave it. Heads, checkpoints and the
runs that can still be resumed are the roots.
"""

from dataclasses import dataclass, field
from typing import Any

from tenuto.codec import loads_map
from tenuto.model.report import GcReport
from tenuto.store.rules.commit.lineage import segments
from tenuto.store.rules.plan import Plan, Script, Write
from tenuto.store.rules.records import ends_of
from tenuto.store.rules.rows import BranchRow

ROWS_PER_SLICE = 1000


@dataclass(slots=True, kw_only=True)
class Family:
    """Everything that decides what a family's sessions reach. `lives` is the life each session is in now."""

    now: int
    lives: dict[int, int]
    roots: list[str]
    held: dict[int, set[str]]
    branches: dict[tuple[int, int], BranchRow]
    tips: dict[tuple[int, int], int]
    holdings: list[tuple[int, str]]


@dataclass(slots=True)
class Collected:
    """What one slice decided: `more` says that another is needed, `dropped` which values which session released."""

    report: GcReport
    more: bool = False
    dropped: list[tuple[int, str]] = field(default_factory=list)


@dataclass(slots=True)
class _Sweep:
    writes: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    entries: int = 0
    branches: int = 0
    waiting: int = 0
    more: bool = False

    def write(self, name: str, *row: Any) -> None:
        self.writes.setdefault(name, []).append(row)


def gather_family(family: int, now: int | None) -> Script[Family]:
    """Read all that a collection of one family has to see."""
    ((moment,),) = yield "moment", (now,)
    sessions = yield "family_sessions", (family,)
    checkpoints = yield "family_checkpoints", (family,)
    runs = yield "family_runs", (family,)
    branches = [BranchRow(*row) for row in (yield "family_branches", (family,))]
    tips = yield "family_tips", (family,)
    holdings = yield "family_holdings", (family,)
    held: dict[int, set[str]] = {sid: set() for sid, *_ in sessions}
    for sid, text in [(sid, text) for sid, _, _, text in sessions] + [(sid, text) for sid, _, text in checkpoints]:
        held[sid] |= set(loads_map(text, "held fields").values()) if text else set()
    return Family(
        now=moment,
        lives={sid: life for sid, life, _, _ in sessions},
        roots=[heads for _, _, heads, _ in sessions]
        + [ends for _, ends, _ in checkpoints]
        + [e for row in runs for e in row if e],
        held=held,
        branches={(branch.session, branch.branch): branch for branch in branches},
        tips={(session, branch): tip for session, branch, tip in tips},
        holdings=[(session, content) for session, content in holdings],
    )


def decide_collect(grace: int, family: Family) -> Plan[Collected]:
    """Remove what has been unreachable for `grace`; note the time for what has become so.

    A former life gets no grace.
    """
    reach = reachable(family)
    sweep = _Sweep()
    for place, branch in sorted(family.branches.items()):
        _judge(sweep, place, branch, reach.get(place), family, grace)
    dropped = [(session, content) for session, content in family.holdings if content not in family.held[session]]
    if dropped:
        sweep.writes["delete_holdings"] = list(dropped)
    report = GcReport(entries=sweep.entries, branches=sweep.branches, waiting=sweep.waiting)
    writes = [Write(name, rows) for name, rows in sweep.writes.items()]
    return Plan(Collected(report, sweep.more, dropped), writes)


def reachable(family: Family) -> dict[tuple[int, int], int]:
    """Return, for every branch somebody reaches, the position up to which."""
    reach: dict[tuple[int, int], int] = {}
    ends = {end for text in family.roots for end in ends_of(text, "ends").values()}
    for end in ends:
        _mark(reach, (end.session, end.branch), end.position)
        for part in segments(family.branches.get((end.session, end.branch)), end):
            _mark(reach, (part.session, part.branch), part.stop)
    return reach


def _mark(reach: dict[tuple[int, int], int], place: tuple[int, int], upto: int) -> None:
    reach[place] = max(reach.get(place, 0), upto)


def _judge(
    sweep: _Sweep, place: tuple[int, int], branch: BranchRow, upto: int | None, family: Family, grace: int
) -> None:
    tip = family.tips.get(place, branch.start)
    loose_from = branch.start if upto is None else max(upto, branch.start)
    if upto is not None and tip <= loose_from:
        if branch.loose_at is not None:
            sweep.write("mark_branches", None, None, *place)
        return
    former_life = branch.life < family.lives.get(branch.session, branch.life)
    known = branch.loose_at is not None and branch.loose_from is not None and branch.loose_from <= loose_from
    since = branch.loose_at if known and branch.loose_at is not None else family.now
    if not former_life and since + grace > family.now:
        sweep.waiting += 1
        if not known or branch.loose_from != loose_from:
            sweep.write("mark_branches", loose_from, since, *place)
        return
    room = ROWS_PER_SLICE - sweep.entries
    first = max(loose_from, tip - room)
    if first < tip:
        sweep.entries += tip - first
        sweep.write("cut_entries", *place, first)
    if first > loose_from:
        sweep.more = True
    elif upto is None:
        sweep.branches += 1
        sweep.write("delete_branches", *place)
    elif branch.loose_at is not None:
        sweep.write("mark_branches", None, None, *place)
