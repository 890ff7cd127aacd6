"""The pipelines of a session besides its turns: create it, read it, and execute an action on it.

Exactly one notice reports a stage that fails, and names it. A failure after the commit does not undo the commit: a
separate notice reports it.
"""

from collections.abc import Coroutine
from contextlib import closing
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

from tenuto.errors import InvalidInput, WaitNotOpen
from tenuto.ids import new_id
from tenuto.model.commit import Commit, NewCheckpoint, Receipt
from tenuto.model.event import NewEvent
from tenuto.model.input import Consume
from tenuto.model.lane import Lane
from tenuto.model.run import RunStatus
from tenuto.model.session import Profile, SessionKey, SessionStatus
from tenuto.runtime.change.action import ChangeProgram
from tenuto.runtime.change.hooks import Hooks, same_session
from tenuto.runtime.change.program_state import as_read, created, settled
from tenuto.runtime.conversation.history import History, preview_of, title_of
from tenuto.runtime.program.program import Programs
from tenuto.runtime.session.action_protocol import Action
from tenuto.runtime.session.info import head_of
from tenuto.runtime.session.session_view import (
    MESSAGES,
    Changes,
    SessionView,
    changes_between,
    check_names,
    definition_profile,
)
from tenuto.runtime.session.status import check_transition
from tenuto.runtime.stream.failures import Failures
from tenuto.runtime.stream.notices import (
    ActionFailed,
    Listeners,
    SessionActionExecuted,
    SessionLoaded,
    SessionSaved,
    failure,
)
from tenuto.runtime.turn.debts import abandon_run
from tenuto.runtime.turn.replica import Replica
from tenuto.store.store import Store
from tenuto.words import Stage
from tenuto.writing.lane_claim import under
from tenuto.writing.log_tracker import operation_of

T = TypeVar("T")

_TRIES = 20
"""How often waits are abandoned again if answers race with that."""


class NeedsLane(Exception):
    """An action, or a hook of it, changes more than may be changed without the session's lane; nothing was written."""


class Pipeline:
    """Passes a session through its hooks and notifies listeners, in the order that is the contract."""

    def __init__(
        self, store: Store, programs: Programs, hooks: Hooks, listeners: Listeners, failures: Failures
    ) -> None:
        self._store = store
        self._failures = failures
        self._programs = programs
        self._hooks = hooks
        self._listeners = listeners

    async def create(
        self, session: SessionView, operation_id: str, *, is_conversation: bool = True, parent_life: int | None = None
    ) -> SessionView:
        """Create a session: before_create, before_save, the commit, after_save, after_create.

        With `is_conversation`, its messages are checked as one. With `parent_life`, the parent must still be in that
        life.
        """
        key, stage = session.key, "before_create"
        try:
            session = await self._stage("before_create", session)
            stage = "before_save"
            session = await self._stage("before_save", session)
            stage = "save"
            check_transition(key, SessionStatus.ACTIVE, session.status, session.version)
            if is_conversation:
                History().judged(session.messages)
                session = _first_shown(session)
            session = created(self._programs, session)
            check_names(session.document)
            if clash := session.document.keys() & session.logs.keys():
                raise InvalidInput(f"{min(clash)!r} cannot be both a log and a field of the document.")
            session = replace(session, profile=_profile_of(session))
            receipt = await self._store.create(
                key,
                state={**session.document, **{name: list(items) for name, items in session.logs.items()}},
                logs=frozenset(session.logs),
                schema_version=session.schema_version,
                profile=session.profile,
                status=session.status,
                events=(NewEvent(type=SessionSaved.type, data={"status": str(session.status)}),),
                parent_life=parent_life,
                operation_id=operation_id,
            )
        except Exception as error:
            await self._failures.save(key, error, stage, streams=False)
            raise
        session = _stored(session, receipt)
        session = await self._after_commit("after_save", session)
        session = await self._after_commit("after_create", session)
        await self._listeners.tell(SessionSaved(key=key, version=session.version, status=str(session.status)))
        return session

    async def look(self, replica: Replica, read: SessionView | None = None, *, streams: bool = False) -> SessionView:
        """Pass a session through the `after_load` hooks; nothing is saved, except a failure, if it `streams`.

        Its document is as its program reads it: migrated, if it is stored under an older version.
        """
        try:
            session = await self._stage("after_load", read or as_read(self._programs, replica.value()))
        except Exception as error:
            await self._failures.load(replica.key, error, "after_load", streams=streams)
            raise
        notice = SessionLoaded(key=replica.key, version=session.version, status=str(session.status))
        await self._listeners.tell(notice)
        return session

    async def perform(self, key: SessionKey, name: str, verb: Coroutine[Any, Any, T], *, streams: bool = True) -> T:
        """Do something that is not a change under the lane, and report the session's status before and after it."""
        try:
            with closing(verb):  # not awaited if there is no session
                before = await head_of(self._store, key)
                done = await verb
        except Exception as error:
            await self._failures.verb(key, name, error, streams=streams)
            raise
        after = await self._store.head(key)
        notice = SessionActionExecuted(
            key=key,
            action=name,
            before_version=before.version,
            after_version=after.version if after else before.version,
            before_status=str(before.status),
            after_status=str(after.status if after else SessionStatus.DELETED),
        )
        await self._listeners.tell(notice)
        return done

    async def execute(
        self,
        replica: Replica,
        lane: Lane | None,
        action: Action,
        *,
        name: str | None = None,
        consume: tuple[Consume, ...] = (),
        input_id: str | None = None,
    ) -> SessionView:
        """Execute an action under the lane: after_load, the action, after_action, before_save, the commit, after_save.

        The state is saved only if it changed; a change of definition, metadata or status alone does not move the head.
        Before a change of its state, a checkpoint is stored that the session can be rewound to and forked from. Without
        a lane, only metadata can change; if anything else does, `NeedsLane` is raised.
        """
        name, before = name or type(action).__name__, replica.value()
        read = as_read(self._programs, before)
        loaded = await self.look(replica, read, streams=input_id is None)
        loading = SessionLoaded(key=replica.key, version=loaded.version, status=str(loaded.status))
        stage = "action"
        try:
            after = same_session(loaded, await self._resolved(action).apply(loaded), name)
            stage = "after_action"
            after = await self._stage("after_action", after)
        except Exception as error:
            notice = ActionFailed(key=replica.key, stage=stage, action=name, input_id=input_id, **failure(error))
            await self._failures.report(notice, error, streams=input_id is None)
            raise
        stage = "before_save"
        try:
            after = _shown(replica, before, await self._stage("before_save", after))
            stage = "save"
            after, changes, wrong = self._settled(before, read, after)
            if lane is None and changes.needs_lane:
                raise NeedsLane
            version = replica.version + int(changes.moves_head)
            executed = SessionActionExecuted(
                key=replica.key,
                action=name,
                before_version=replica.version,
                after_version=version,
                before_status=str(loaded.status),
                after_status=str(after.status),
                input_id=input_id,
            )
            await self._listeners.tell(executed)
            if wrong is not None:
                raise wrong
            check_transition(replica.key, replica.status, after.status, replica.version)
            saved = SessionSaved(key=replica.key, version=version, status=str(after.status))
            events = tuple(notice.event() for notice in (loading, executed, saved))
            receipt = await self._save(replica, lane, changes, after, name, {"events": events, "consume": consume})
        except NeedsLane:
            raise
        except Exception as error:
            await self._failures.save(replica.key, error, stage, streams=input_id is None)
            raise
        replica.take(changes, after)
        replica.landed(receipt, saved=changes.moves_head)
        session = await self._after_commit("after_save", replica.value())
        await self._listeners.tell(saved)
        return session

    def _settled(
        self, before: SessionView, read: SessionView, after: SessionView
    ) -> tuple[SessionView, Changes, Exception | None]:
        """Return what an action leaves as its program stores it, with the changes.

        If they cannot be made, there are none, and the reason comes third: the action's notice comes before it.
        """
        try:
            after = settled(self._programs, before, read, after)
            return after, changes_between(before, after), None
        except Exception as error:
            return after, Changes(), error

    def _resolved(self, action: Action) -> Action:
        """Return an action with the version of the program it names, if that is the one registered here."""
        if isinstance(action, ChangeProgram) and "@" not in action.program:
            return ChangeProgram(self._programs.latest(action.program))
        return action

    async def _save(
        self,
        replica: Replica,
        lane: Lane | None,
        changes: Changes,
        after: SessionView,
        name: str,
        parts: dict[str, Any],
    ) -> Receipt:
        if lane is None:
            metadata = changes.metadata
            return await self._store.commit(
                Commit(key=replica.key, operation_id=new_id(), life=replica.life, metadata=metadata, **parts)
            )
        abandons = False
        if replica.is_conversation and (change := changes.logs.get(MESSAGES)):
            history = History.of(after.messages[: change.kept]) if change.anew else replica.history
            abandons = len(after.messages) < len(replica.messages)
            history.judged(change.items, () if abandons else replica.history.open)
        if changes.moves_head:
            parts["checkpoint"] = NewCheckpoint(step=0, cursor={"action": name}, before=True)
        commit = under(
            lane,
            expected_version=replica.version,
            save=changes.moves_head,
            document=changes.document,
            removed=changes.removed,
            logs={name: operation_of(change, replica.ends.get(name)) for name, change in changes.logs.items()},
            schema_version=after.schema_version if changes.moves_head else None,
            profile=changes.profile,
            metadata=changes.metadata,
            status=changes.status,
            statuses=frozenset({replica.status}),
            **parts,
        )
        for attempt in count(1):
            try:
                return await self._store.commit(
                    replace(commit, **await self._abandoned(replica)) if abandons else commit
                )
            except WaitNotOpen:  # raced with an answer, so that wait cannot be abandoned any more: retry
                if not abandons or attempt == _TRIES:
                    raise
        raise AssertionError("unreachable")

    async def _abandoned(self, replica: Replica) -> dict[str, Any]:
        """Return the commit parts that roll back a suspended run whose conversation is cut by an action.

        The run is not resumed, even if all its waits are answered; a parent that waits for it is notified.
        """
        if replica.last_run is None or replica.last_run[1] is not RunStatus.SUSPENDED:
            return {}
        run_id = replica.last_run[0]
        run = await self._store.runs.get(run_id, tenant=replica.key.tenant)
        if run is None:
            return {}  # deleted meanwhile: the commit will be refused
        waits = await self._store.waits.of_session(replica.key, run_id=run_id)
        settled, owed = await abandon_run(self._store, run, waits)
        return {"settle_waits": tuple(settled), "outgoing": tuple(owed), "rolls_back": run_id}

    async def _stage(self, stage: Stage, session: SessionView) -> SessionView:
        return await self._hooks.on_stage(stage, session)

    async def _after_commit(self, stage: Stage, session: SessionView) -> SessionView:
        try:
            return await self._stage(stage, session)
        except Exception as error:
            await self._failures.hook(session.key, error, stage)
            return session


def _shown(replica: Replica, before: SessionView, after: SessionView) -> SessionView:
    """Return the session with the preview of its conversation, if an action or a hook changed that."""
    if (
        not replica.is_conversation
        or after.messages is before.messages
        or after.profile.preview != before.profile.preview
    ):
        return after
    return after.with_profile(preview=preview_of(after.messages))


def _first_shown(session: SessionView) -> SessionView:
    """Return a new session with the texts that lists show of the messages it begins with, where it has none."""
    profile, said = session.profile, session.messages
    if not said or (profile.title is not None and profile.preview is not None):
        return session
    title = title_of(said) if profile.title is None else profile.title
    return session.with_profile(title=title, preview=profile.preview or preview_of(said))


def _profile_of(session: SessionView) -> Profile:
    definition = session.definition
    return session.profile if definition is None else replace(session.profile, **definition_profile(definition))


def _stored(session: SessionView, receipt: Receipt) -> SessionView:
    return replace(
        session,
        version=receipt.version,
        commit_number=receipt.commit_number,
        event_seq=receipt.event_seq,
        created_at=receipt.committed_at,
        updated_at=receipt.committed_at,
    )
