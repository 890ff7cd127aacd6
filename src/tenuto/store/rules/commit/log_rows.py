"""What a commit's log operations write: entries, branches, and the new ends of head and run.

A session's head always stands at the tip of its own branch, so appending to it needs no look at the branch. A
run that writes before its save does so on its own branches; the save folds them onto the head.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tenuto.codec import encode, loads
from tenuto.errors import CommitRefused, InvalidInput
from tenuto.model.commit import Append, LogWrite
from tenuto.model.session import Ends, LogEnd
from tenuto.store.rules.commit.lineage import Segment, lineage_text, new_branch, segments
from tenuto.store.rules.limits import MAX_COUNT, next_count
from tenuto.store.rules.plan import Found, Write
from tenuto.store.rules.records import ends_of, texts_of
from tenuto.store.rules.rows import BranchRow, EntryRow, RunRow, SessionRow

REKEY_AT_MOST = 1000
"""A run branch with more rows is not moved onto the head's; the head moves to it instead."""


def is_run_log(name: str) -> bool:
    """Return whether a log lives on a run's branches only: its name has a frame path."""
    return "/" in name


class Stand(NamedTuple):
    """Where a run stands: its logs' ends, its base (None: the head's), and the logs on its own branches."""

    ends: dict[str, LogEnd] | None = None
    base: dict[str, LogEnd] | None = None
    own: frozenset[str] = frozenset()


def stand_of(run: RunRow) -> Stand:
    """Read where a stored run stands."""
    own = frozenset(texts_of(run.own_logs, "own logs"))
    return Stand(ends_of(run.ends, "run ends"), ends_of(run.base_ends, "run base"), own)


class LogWriter:
    """Works out one commit's log writes from what was found. `heads`, `ends` and `own` are the result for the rows."""

    def __init__(self, session: SessionRow, stand: Stand, found: Found, commit_no: int, schema_version: str):
        self.heads = ends_of(session.heads, "heads")
        self.ends = stand.ends if stand.ends is not None else dict(self.heads)
        self.base = stand.base if stand.base is not None else dict(self.heads)
        self.own = set(stand.own)
        # Logs the run stands further on than its base, also where a former run of its invocation wrote them.
        self._ahead = {name for name, end in self.ends.items() if end != self.base.get(name) and not is_run_log(name)}
        self.branch_seq = session.branch_seq
        self._session = session
        self._found = found
        self._stamp = (commit_no, schema_version)
        self._entries: list[EntryRow] = []
        self._branches: list[BranchRow] = []
        self._parents: set[tuple[int, int]] = set()
        self._rekeys: list[tuple[LogEnd, LogEnd, int]] = []

    def save(self, logs: Mapping[str, LogWrite], items: Mapping[str, list[str]], removed: frozenset[str]) -> None:
        """Write to the head; what the run wrote on its own branches, or continued from, is folded in."""
        for name in removed:
            self.heads.pop(name, None)
        if self._ahead:
            for name in sorted(self._ahead - self.own - logs.keys()):
                self._write_to_run(name, Append(), [])
        for name, write in logs.items():
            if is_run_log(name) or name in self.own or name in self._ahead:
                self._write_to_run(name, write, items[name])
            else:
                self._write_to_head(name, write, items[name])
        if self.own:
            for name in sorted(name for name in self.own if not is_run_log(name)):
                self._fold(name)
            self.own = {name for name in self.own if is_run_log(name)}
        self.ends = {name: end for name, end in self.ends.items() if is_run_log(name)} | self.heads
        self.base = self.heads

    def checkpoint(self, logs: Mapping[str, LogWrite], items: Mapping[str, list[str]]) -> None:
        """Write to the run's own branches; the head does not change."""
        for name, write in logs.items():
            self._write_to_run(name, write, items[name])

    def add_to_head(self, name: str, item: str) -> None:
        """Add one more entry to a log of the head, after a save; the run that saved stays where it stood."""
        self.heads = dict(self.heads)
        self._write_to_head(name, Append(), [item])

    def writes(self) -> list[Write]:
        """Return the writes, branches before the entries that stand on them."""
        found = []
        if self._parents:
            found.append(Write("share_branches", sorted(self._parents), must=True))
        if self._branches:
            found.append(Write("insert_branches", self._branches))
        for run_end, head_end, stop in self._rekeys:
            lineage = self._lineage_through(head_end, stop)
            found.append(Write("rekey_branch", [(stop, lineage, run_end.session, run_end.branch)], must=True))
            found.append(Write("rekey_entries", [(head_end.branch, run_end.session, run_end.branch)]))
        if self._entries:
            found.append(Write("insert_entries", self._entries))
        return found

    def _write_to_head(self, name: str, write: LogWrite, items: list[str]) -> None:
        end = self.heads.get(name)
        if not isinstance(write, Append):
            end = self._branch(name, write.keep)
        elif end is None or (write.base is not None and write.base != end):
            end = self._branch(name, write.base)
        self.heads[name] = self._append(end, items)

    def _write_to_run(self, name: str, write: LogWrite, items: list[str]) -> None:
        end = self.ends.get(name)
        if not isinstance(write, Append):
            end = self._branch(name, write.keep)
        elif write.base is not None and write.base != end:
            end = self._branch(name, write.base)
        elif end is None or name not in self.own:
            end = self._branch(name, end, trusted=True)
        self.own.add(name)
        self.ends[name] = self._append(end, items)

    def _fold(self, name: str) -> None:
        end, head = self.ends[name], self.heads.get(name)
        branch = self._found.branches.get((end.session, end.branch))
        # Three cases: the branch or the log is new in this commit, or it does not continue the head, or it is
        # too long or shared: the head moves to it. Otherwise its stored rows move onto the head's branch.
        if branch is None or head is None or branch.shared or end.position - branch.start > REKEY_AT_MOST:
            self.heads[name] = end
            return
        parts = loads(branch.lineage, "lineage")
        continues = branch.start == head.position and (
            parts[-1][:2] == [head.session, head.branch] if parts else head.position == 0
        )
        if not continues or (end.session, end.branch) == (head.session, head.branch):
            self.heads[name] = end
            return
        moved = LogEnd(head.session, head.branch, end.position)
        self._entries = [
            entry._replace(branch=head.branch) if entry.branch == end.branch else entry for entry in self._entries
        ]
        stored = min((e.position for e in self._entries if e.branch == head.branch), default=end.position)
        if stored > branch.start:
            self._rekeys.append((end, head, stored))
        self.heads[name] = moved

    def _lineage_through(self, head: LogEnd, stop: int) -> str:
        """Return the lineage of a branch whose entries up to `stop` are on the head's branch."""
        place = (head.session, head.branch)
        before = [part for part in segments(self._found.branches.get(place), head) if part[:2] != place]
        start = before[-1].stop if before else 0
        return lineage_text([*before, Segment(*place, start, stop)])

    def _append(self, end: LogEnd, items: list[str]) -> LogEnd:
        session, branch, position = end
        if position + len(items) > MAX_COUNT:
            raise InvalidInput("A log cannot hold more entries.")
        stamp = self._stamp
        self._entries += [EntryRow(session, branch, at, *stamp, text) for at, text in enumerate(items, start=position)]
        return LogEnd(session, branch, position + len(items))

    def _branch(self, name: str, after: LogEnd | None, *, trusted: bool = False) -> LogEnd:
        sid = self._session.sid
        parts: list[Segment] = []
        if after is not None and not trusted:
            check_point(name, after, self._session, self._found)
        if after is not None and after.position > 0:
            parts = segments(self._found.branches.get((after.session, after.branch)), after)
            # A branch named as parent must not be re-keyed or collected while this commit is under way.
            self._parents.add((parts[-1].session, parts[-1].branch))
        self.branch_seq = next_count(self.branch_seq, "the branch number")
        row = new_branch(sid, self.branch_seq, self._session.life, name, parts)
        self._branches.append(row)
        return LogEnd(sid, row.branch, row.start)


def check_point(name: str, end: LogEnd, session: SessionRow, found: Found) -> None:
    """Refuse a point that is not in this log of this session's present life."""
    branch = found.branches.get((end.session, end.branch))
    if end.session != session.sid or branch is None or (branch.log, branch.life) != (name, session.life):
        raise CommitRefused(f"Log {name!r} of this session has no branch {end.branch}.", log=name, end=end)
    if end.position > branch.start and end not in found.points:
        raise CommitRefused(f"Branch {end.branch} of log {name!r} ends before {end.position}.", log=name, end=end)


def encode_ends(ends: Ends) -> str:
    """Return log ends as the text a row keeps."""
    return encode(ends)
