"""Resumes an earlier run: a suspended, interrupted or failed run continues as a new run of its invocation."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from tenuto.codec import JSON
from tenuto.errors import StatusRefused
from tenuto.model.input import Consume, Input
from tenuto.model.lane import Lane
from tenuto.model.run import Run, RunStatus
from tenuto.model.session import SessionKey
from tenuto.model.wait import Wait, WaitStatus
from tenuto.runtime.run.begin import TurnFactory, run_started, write_start
from tenuto.runtime.run.failed_calls import again_of
from tenuto.runtime.run.first_message import is_notice, notice_message
from tenuto.runtime.run.refusal import Declined
from tenuto.runtime.session.outcome import is_aborted
from tenuto.runtime.session.session_view import MESSAGES
from tenuto.runtime.stream.notices import Notice
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.debts import abandon_waits
from tenuto.runtime.turn.effect_journal import EffectJournal
from tenuto.runtime.turn.invocation import Invocation, start_of
from tenuto.runtime.turn.invocation_waits import ANSWERS_CALLS, STEP, answer_message, lets_call
from tenuto.runtime.turn.replica import Replica
from tenuto.runtime.turn.step_additions import StepAdditions
from tenuto.store.store import Store
from tenuto.writing.pages import all_effects
from tenuto.writing.run_writer import RunWriter


async def resume_stopped(factory: TurnFactory, replica: Replica, lane: Lane) -> TurnContext:
    """Begin the run that resumes a session's interrupted or failed one; raise what refuses it."""
    try:
        return await resume_run(factory, replica, lane, await find_stopped(factory.store, replica.key))
    except Declined as declined:
        raise declined.error from None


async def find_stopped(store: Store, key: SessionKey) -> Run:
    """Return a session's last run if it was interrupted or failed; raise `StatusRefused` for any other.

    An aborted run is final.
    """
    run = await store.runs.current(key)
    if run is not None and is_aborted(run):
        raise StatusRefused(
            f"The last run of {key} was aborted, which is final; send a new message.", key=key, found="aborted"
        )
    if run is None or run.status not in (RunStatus.INTERRUPTED, RunStatus.FAILED):
        state = "has never run" if run is None else f"is {run.status}"
        raise StatusRefused(f"The last run of {key} {state}; there is nothing to resume.", key=key, found=state)
    return run


async def is_resumable(store: Store, run: Run) -> bool:
    """Return whether a suspended run has something to do; False if it was rolled back.

    It has once all its waits are settled or overdue, and, while others are open, if a call was approved that can be
    made now.
    """
    if run.rolled_back:
        return False
    waits = await store.waits.of_session(run.key, run_id=run.run_id, status=None)
    open_waits = [wait for wait in waits if wait.status is WaitStatus.OPEN]
    if not waits or any(wait.status in (WaitStatus.ABANDONED, WaitStatus.CANCELLED) for wait in waits):
        return False
    if not open_waits or any(map(lets_call, waits)):
        return True
    now = await store.moment()
    return all(_is_overdue(wait, now) for wait in open_waits)


def _is_overdue(wait: Wait, now: datetime | None) -> bool:
    return wait.deadline is not None and now is not None and wait.deadline <= now


async def resume_run(
    factory: TurnFactory, replica: Replica, lane: Lane, run: Run, wakes: Sequence[Input] = ()
) -> TurnContext:
    """Resume a run as a new run of its invocation, in one commit that also consumes the wakes.

    Waits that are still open are from then on the new run's.
    """
    writer = RunWriter.under(factory.store, lane)
    turn: TurnContext | None = None
    try:
        factory.check_takes_turns(replica)
        writer.stand(replica.base)
        turn = await rebuild(factory, replica, writer, run, resumes=run.run_id)
        writer.begins(
            invocation_id=run.invocation_id,
            correlation_id=run.correlation_id,
            origin_id=run.origin_id,
            fresh=False,
            budget=turn.budget,
        )
        notices: list[Notice] = [await factory.run_load_hooks(turn)]
        is_open = any(wait.status is WaitStatus.OPEN for wait in turn.waits.of_run(run.run_id))
        _settle(turn, run.run_id, wakes, await factory.store.moment() if is_open else None)
        turn.pending.extras["count_resume"] = True
        notices.append(run_started(turn))
        await write_start(turn, notices)
        replica.resume_count += 1
        if turn.journal.has_doubts:  # some may have been settled just before this run began; from now on only it can
            turn.journal.learn(await all_effects(factory.store, replica.key, origin_id=run.origin_id))
    except BaseException as error:
        await factory.ender.release(turn, writer, error)
        raise
    await factory.listeners.tell(*notices)
    return turn


async def rebuild(
    factory: TurnFactory, replica: Replica, writer: RunWriter, run: Run, *, resumes: str | None
) -> TurnContext:
    """Build a turn with the effects, waits and step count of the earlier runs of its invocation."""
    effects = await all_effects(factory.store, replica.key, origin_id=run.origin_id)
    waits = await factory.store.waits.of_invocation(replica.key, run.origin_id)
    runs = await factory.store.runs.of_invocation(run.invocation_id, tenant=replica.key.tenant)
    start = await start_of(factory.store, run)
    before = sum(each.steps for each in runs if each.run_id != run.run_id)
    invocation = Invocation(
        invocation_id=run.invocation_id,
        origin_id=run.origin_id,
        correlation_id=run.correlation_id,
        input=_last_user_message(replica),
        resumes=resumes,
        follows=start.trace,
        steps_before=before + run.steps if resumes else before,
        waits=tuple(waits),
        reply_to=start.reply_to,
    )
    journal = EffectJournal(effects, run_id=writer.run_id, attempt=writer.attempt, again=again_of(runs, effects))
    turn = factory.build(replica, writer, invocation, journal)
    turn.additions = StepAdditions.of(run.additions, is_stored=resumes is None)
    if resumes is None:
        turn.steps, turn.stop, turn.budget = run.steps, run.stop, run.budget or turn.budget
    return turn


def _settle(turn: TurnContext, run_id: str, wakes: Sequence[Input], now: datetime | None) -> None:
    """Expire overdue waits, keep the other open ones, append the results of answered calls, and consume the wakes.

    A step whose last call is answered here is over.
    """
    former = turn.waits.of_run(run_id)
    left = {wait.wait_id for wait in former if wait.status is WaitStatus.OPEN and not _is_overdue(wait, now)}
    overdue = [wait for wait in former if wait.wait_id not in left]
    settled, owed = abandon_waits(overdue, turn.key.tenant, WaitStatus.EXPIRED)
    turn.pending.settled.extend(settled)
    turn.pending.outgoing.extend(owed)
    if left:
        turn.pending.extras["keep_waits"] = tuple(sorted(left))
    turn.waits.resumed(run_id, turn.run_id, left)
    open_calls, answered = set(turn.replica.history.open), []
    for wait in turn.waits.of_run(run_id):
        call = str(wait.metadata.get("call_id"))
        if wait.kind in ANSWERS_CALLS and call in open_calls:
            turn.pending.add(MESSAGES, [answer_message(wait)])
            open_calls.discard(call)
            answered.append(wait)
    if answered and not open_calls and any(wait.metadata.get(STEP) == turn.step for wait in answered):
        turn.count_step()
    takes_notices = not open_calls and not turn.traits.resumes  # an engine continues from its checkpoint
    _take_wakes(turn, [each for each in wakes if takes_notices or not is_notice(each)])


def _take_wakes(turn: TurnContext, wakes: Sequence[Input]) -> None:
    for each in wakes:
        note = notice_message(each, turn.traits)
        if note is not None:
            item = turn.pending.add(MESSAGES, [note])
            turn.pending.consume.append(Consume(input_id=each.input_id, log=MESSAGES, item=item))
        else:
            turn.pending.consume.append(Consume(input_id=each.input_id))


def _last_user_message(replica: Replica) -> JSON:
    return next(
        (each for each in reversed(replica.messages) if isinstance(each, Mapping) and each.get("role") == "user"), None
    )
