"""The store: one commit in, few reads out.

This is the port that sessions, graphs and the runtime stand on. Every verb is one transaction and one decision; its
docstring is the contract that `tenuto.testing.contract` checks on every backend. Verbs take a full `SessionKey`, or a
plain id for the default tenant and kind.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from tenuto.argument import check_flag, check_items, check_map
from tenuto.clock import Clock, to_datetime
from tenuto.codec import JSON
from tenuto.errors import CommitMoved, InvalidInput, SessionDeleted, SessionNotFound, StoredDataCorrupt
from tenuto.ids import new_id
from tenuto.model.commit import Append, BeginRun, Budget, Commit, Receipt
from tenuto.model.event import NewEvent
from tenuto.model.input import NewInput
from tenuto.model.lane import LaneTiming
from tenuto.model.report import DeleteReport
from tenuto.model.run import Run
from tenuto.model.session import (
    Key,
    Profile,
    SessionFilter,
    SessionHead,
    SessionKey,
    SessionPage,
    SessionRecord,
    SessionStatus,
    Stamp,
    as_key,
)
from tenuto.store.backend import Backend, Warm, columns_of, session_lock
from tenuto.store.facets.checkpoints import Checkpoints
from tenuto.store.facets.effects import Effects
from tenuto.store.facets.events import Events
from tenuto.store.facets.inbox import Inbox
from tenuto.store.facets.lanes import Lanes
from tenuto.store.facets.listing import read_page
from tenuto.store.facets.logs import Logs
from tenuto.store.facets.outbox import Outbox
from tenuto.store.facets.runs import Runs
from tenuto.store.facets.schedules import Schedules
from tenuto.store.facets.usage import Usage
from tenuto.store.facets.waits import Waits
from tenuto.store.housekeeping.deletions import Deletions
from tenuto.store.housekeeping.sweep import Sweep
from tenuto.store.housekeeping.upkeep import Upkeep
from tenuto.store.keeper import Keeper
from tenuto.store.rules.commit.pack import pack
from tenuto.store.rules.commit.write import ask_commit, decide_commit, is_warm
from tenuto.store.rules.fields import RECORD
from tenuto.store.rules.limits import check_count, check_label, check_name, check_names, check_word, if_given
from tenuto.store.rules.parts.profile_rules import check_profile
from tenuto.store.rules.plan import Ask, gather
from tenuto.store.rules.rows import ReceiptRow
from tenuto.store.rules.session_row import receipt_of
from tenuto.store.rules.verbs.lifecycle import Forking, decide_create, decide_fork
from tenuto.store.session_record import Dump, find_session, log_items, read_dump, read_head, read_record, whole_record
from tenuto.store.store_context import StoreContext, transact

T = TypeVar("T")

_SAVE_TRIES = 100


class Store(StoreContext):
    """Keeps sessions on a backend.

    `async with open_store(url) as store:` is its one lifecycle; closing twice is fine.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        budget: Budget | None = None,
        clock: Clock | None = None,
        lanes: LaneTiming | None = None,
    ) -> None:
        super().__init__(backend, budget or Budget(), clock)
        self.timing = lanes or LaneTiming()
        self.lanes = Lanes(self)
        self.logs = Logs(self)
        self.runs = Runs(self)
        self.checkpoints = Checkpoints(self)
        self.waits = Waits(self)
        self.events = Events(self)
        self.inbox = Inbox(self)
        self.effects = Effects(self)
        self.usage = Usage(self)
        self.outbox = Outbox(self)
        self.schedules = Schedules(self)
        sweep = Sweep(self)
        self._deletions = Deletions(self, sweep)
        self.upkeep = Upkeep(self, self._deletions, sweep)
        self.keeper = Keeper(self, ttl=self.timing.ttl, every=self.timing.renew)

    async def __aenter__(self) -> "Store":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Finish what is under way and close the backend; a second call does nothing."""
        await self.backend.aclose()  # which refuses a caller from another event loop
        await self.keeper.aclose()

    async def sibling(self) -> "Store":
        """Open the same data once more, for use in another thread and event loop."""
        return Store(await self.backend.sibling(), budget=self.budget, clock=self._clock, lanes=self.timing)

    async def create(
        self,
        key: Key,
        *,
        state: Mapping[str, JSON] | None = None,
        logs: frozenset[str] | set[str] = frozenset(),
        schema_version: str = "",
        profile: Profile | None = None,
        status: SessionStatus = SessionStatus.ACTIVE,
        events: Sequence[NewEvent] = (),
        parent_life: int | None = None,
        operation_id: str | None = None,
    ) -> Receipt:
        """Begin a session at version 1, or at the next version of a deleted id.

        Of concurrent creates exactly one wins; the others, and any create on a live id, get `SessionExists` with the
        version found, and nothing changes. Repeated with its operation id it returns the first receipt. `logs` names
        the fields of `state` that are logs; `events` are the first of its stream. Parent, root and forked_from stay as
        given here; with `parent_life`, a parent that does not live in that life is `SessionNotFound`. While a runner
        holds the lane: `LaneBusy`.
        """
        state, names = {} if state is None else check_map(state, "state"), check_names(logs, "logs")
        commit = Commit(
            key=as_key(key),
            operation_id=new_id() if operation_id is None else operation_id,
            life=0,
            save=True,
            document={name: value for name, value in state.items() if name not in names},
            logs={name: Append(items=log_items(name, state.get(name, []))) for name in sorted(names)},
            schema_version=check_label(schema_version, "schema_version"),
            status=None if check_word(status, SessionStatus, "status") == SessionStatus.ACTIVE else status,
            events=check_items(events, "events"),
        )
        packed = pack(commit, self.budget, Profile() if profile is None else profile)
        if_given(check_count, parent_life, "parent_life")
        ask = ask_commit(packed)._replace(parent=_parent(commit.key, profile))
        return await transact(self, ask, partial(decide_create, packed, parent_life), packed.size)

    async def exists(self, key: Key) -> bool:
        """Return whether there is a live session; asking creates nothing."""
        async with self.backend.view() as view:
            return await find_session(view, as_key(key)) is not None

    async def moment(self) -> datetime:
        """Return the time on the database's clock, which decides about everything that falls due."""
        ((now,),) = await self.backend.read("moment", self.now())
        return to_datetime(now)

    async def life(self, key: Key) -> int:
        """Return the id's life, also of an absent one; every commit names it."""
        ((life,),) = await self.backend.read("life_of", *columns_of(as_key(key)))
        return int(life)

    async def head(self, key: Key) -> SessionHead | None:
        """Return what the session is now, without history or state: one row; None if there is no live session."""
        rows = await self.backend.read("head_by_key", *columns_of(as_key(key)))
        return read_head(rows[0]) if rows else None

    async def stamp(self, key: Key) -> Stamp | None:
        """Return what confirms a copy kept in memory; None if there is no live session. The cheapest read there is."""
        rows = await self.backend.glance("stamp_by_key", *columns_of(as_key(key)))
        if not rows:
            return None
        life, version, commit, generation, schema, has_input, steers, event_seq, status = rows[0]
        flags = (bool(has_input), bool(steers))
        return Stamp(life, version, commit, generation, schema, *flags, event_seq, SessionStatus(status))

    async def load(self, key: Key) -> SessionRecord | None:
        """Return the whole session, as at one instant; None if there is no live session.

        Entries and held values never change, so they may be read after the head that names them. Should something be
        missing, since the session was deleted or rewound and collected in between, all is read at one instant.
        """
        found = await self.load_with_run(key)
        return found[0] if found else None

    async def load_with_run(self, key: Key) -> tuple[SessionRecord, Run | None] | None:
        """Return the whole session and its current run, which began last, if it ever had one; as `load`."""
        key = as_key(key)
        with suppress(StoredDataCorrupt):
            async with self.backend.view(at_one_instant=False) as view:
                return await read_record(view, key)
        async with self.backend.view() as view:
            return await read_record(view, key)

    async def save(self, key: Key, record: SessionRecord, *, expected_version: int | None = None) -> Receipt:
        """Write a whole record over whatever is stored: the last write wins.

        With `expected_version` a session at another version is refused as `VersionConflict`, and 0 expects none. A
        known log that grew is appended to, any other change of a log resets it; an unknown session's fields are
        document unless `record.logs` names them. A field that changes between document and log is refused. An absent
        or deleted session begins, or begins again. While a runner holds the lane: `LaneBusy`.
        """
        key = as_key(key)
        RECORD(record, "record")
        if_given(check_count, expected_version, "expected_version")
        if record.session_id != key.session_id:
            raise InvalidInput(f"The record is of {record.session_id!r}, not of {key}.", session_id=record.session_id)
        operation_id = new_id()
        for _ in range(_SAVE_TRIES):
            commit = await whole_record(self, key, record, operation_id, expected_version)
            try:
                return await self.commit(commit)
            except (CommitMoved, SessionDeleted) as conflict:
                # The logs were compared with another commit's; with no version to keep, compare again.
                last = conflict
        raise last

    async def commit(self, commit: Commit) -> Receipt:
        """Apply one commit, whole or not at all.

        Checked inside the transaction, in this order: life (`SessionDeleted`), receipt (same operation id: the first
        receipt, or `OperationConflict` for another intent), generation (`LaneLost`; without one, a head move under a
        held lane is `LaneBusy`), run and attempt (`RunNotLive`, `InvocationExists`, `StopRequested`), status
        (`StatusRefused`), version (`VersionConflict`), claims, waits and effects (`ClaimLost`, `WaitNotOpen`,
        `EffectMismatch`, `EffectNotOpen`). Over-large or malformed commits are refused before it (`CommitTooLarge`,
        `InvalidInput`).
        """
        packed = pack(commit, self.budget)
        run, now = commit.run, self.now()
        warm = None
        if is_warm(packed):
            warm = Warm(commit.key, run.run_id if run else "", isinstance(run, BeginRun), commit.save, now)
        receipt: Receipt = await self.backend.transact(
            lambda: gather(ask_commit(packed), now),  # what a commit needs is worked out only when it is read
            partial(decide_commit, packed),
            session_lock(commit.key),
            size=packed.size,
            warm=warm,
        )
        if (commit.events or commit.next_run) and not receipt.replayed:
            self.backend.announce(commit.key)
        return receipt

    async def receipt(self, key: Key, operation_id: str) -> Receipt | None:
        """Return the receipt of an operation of the id's present life, or None if it has not landed (or was pruned)."""
        named = (*columns_of(as_key(key)), check_name(operation_id, "operation_id"))
        rows = await self.backend.read("receipt_by_id", *named)
        return receipt_of(ReceiptRow(*rows[0]), replayed=True) if rows else None

    async def fork(
        self,
        source: Key,
        target: Key,
        *,
        at: int | None = None,
        profile: Profile | None = None,
        expected_commit: int | None = None,
        first: NewInput | None = None,
        operation_id: str | None = None,
    ) -> Receipt:
        """Begin `target` with the head of `source`, now or at the checkpoint with commit number `at`, copying no entry.

        The fork is at version 1 and shares nothing that changes: no run, wait, event or receipt comes with it. Its
        profile is the source's with `profile` over it; both belong to one tenant. With `expected_commit`, a source at
        another commit is `VersionConflict`. `first` is queued in the fork's inbox as part of the same transaction; its
        id is in the receipt. A missing checkpoint is `ForkPointNotRetained` naming the nearest ones. A live target is
        `SessionExists`; repeated with its operation id it returns the first receipt.
        """
        source, target = as_key(source), as_key(target)
        if source.tenant != target.tenant:
            raise InvalidInput(f"{source} cannot be forked into another tenant: a fork shares its entries.", key=source)
        if_given(check_count, at, "at")
        if_given(check_count, expected_commit, "expected_commit")
        if profile is not None:
            check_profile(profile)
        asked = Forking(
            source=source,
            target=target,
            at=at,
            profile=profile,
            expected_commit=expected_commit,
            first=None if first is None else self.inbox.packed(first),
            operation_id=check_name(new_id() if operation_id is None else operation_id, "operation_id"),
        )
        parent = _parent(target, profile)
        ask = Ask(key=target, operation_id=asked.operation_id, source=source, checkpoint=at, parent=parent)
        receipt = await transact(self, ask, partial(decide_fork, asked), len(asked.first.body) if asked.first else 0)
        if asked.first is not None and not receipt.replayed:
            self.backend.announce(target)
        return receipt

    async def copy_across(self, source: Key, target: Key, *, operation_id: str | None = None) -> Receipt:
        """Begin `target`, in any tenant, with a copy of the head of `source`; for operators, the one way across.

        Every entry and value is written again and belongs to the target's tenant alone. Nothing points back: the copy
        has no parent, root or fork point, and no run, wait, event or receipt comes with it. What is more than one
        commit takes is `CommitTooLarge`. Otherwise as `create`.
        """
        source = as_key(source)
        record = await self.load(source)
        if record is None or record.head is None:
            raise SessionNotFound(f"There is no {source} to copy.", key=source)
        return await self.create(
            target,
            state=record.state,
            logs=record.logs,
            schema_version=record.schema_version,
            profile=replace(record.head.profile, parent=None, root=None, forked_from=None),
            operation_id=operation_id,
        )

    async def delete(self, key: Key, *, cascade: bool = False) -> DeleteReport:
        """End a session for good and report what went; deleting what is not there does nothing and reports zeros.

        Needs no lane and is never busy. One small transaction writes the tombstone, and with it what the session owes:
        a parent that waits for it (a wait of the kind `child` whose metadata names it) gets an outgoing
        `child_result` with an error, and results and stops that were on their way stay. Entries, big values and events
        go in slices before the call returns. Children and forks stay and are named; `cascade=True` deletes the
        children's tree, each in the life it had, never forks. What a cascade has to do is stored from the
        tombstone on: repeated, it continues where it was cut off, and gives the whole report until gc forgets it; gc
        finishes it too. The id may be used again: its version, commit number, generation and event numbers continue.
        """
        return await self._deletions.delete(as_key(key), cascade=check_flag(cascade, "cascade"))

    async def list(
        self,
        filter: SessionFilter | Mapping[str, Any] | None = None,  # noqa: A002 - the protocol's own name
        *,
        limit: int | None = None,
        after: str | None = None,
    ) -> SessionPage:
        """Return summaries of live sessions, newest first, without state and without reading any log entry.

        Without a limit all of them; with one, a page whose `next` is the `after` of the following page: a session
        that lives through the whole listing is on exactly one page. An unknown condition or cursor is `InvalidInput`.
        """
        async with self.backend.view() as view:
            return await read_page(view, filter, limit, after)

    async def dump(self) -> Dump:
        """Return every row of every table, for tests, exports and repair; it can be as big as the store."""
        return await read_dump(self.backend)


def _parent(child: SessionKey, profile: Profile | None) -> SessionKey | None:
    named = profile.parent if profile else None
    return None if named is None else SessionKey(named, tenant=child.tenant, kind=child.kind)


def check_whole_store(store: Any, what: str) -> None:
    """Refuse what is not a store of Tenuto's own where four methods are not enough; `what` is what it is for."""
    if not isinstance(store, Store):
        raise InvalidInput(
            f"{what} need a store of Tenuto's own, which has commits, lanes and logs: call open_store(...). "
            f"Got {type(store).__name__!r}; an object with only load, save, delete and list can keep a graph's "
            "sessions, by with_session_store."
        )
