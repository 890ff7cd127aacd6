"""Usage: a ledger of model calls that no repeat, takeover or replay counts twice."""

from dataclasses import replace
from typing import Any

import pytest

from tenuto.errors import InvalidInput, OperationConflict, UsageOutOfRange
from tenuto.model.commit import BeginRun, EndRun
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import Profile
from tenuto.model.token_usage import NewUsage, UsageTotals
from tenuto.store.store import Store
from tenuto.testing.checks import not_refused, rows, unchanged
from tenuto.testing.factories import a_commit, a_key, a_session, a_turn, an_id, an_owner
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import fail_at_each_statement, statements

MOST = 2**53 - 1
CALL = NewUsage(model="m-1", source="ask", input=1, output=20, cache_read=300, cache_write=4000, reasoning=50000)


def _sums(usage: UsageTotals) -> tuple[int, ...]:
    return usage.calls, usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning


async def test_usage_is_summed_in_total_by_model_and_by_source(harness: Harness) -> None:
    """Over all commits of the session, with a run and without, also after reopen."""
    store = await harness.open()
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    turn = a_turn(key, lane, usage=(CALL, replace(CALL, model="m-2", input=7)))
    await store.commit(turn)
    await store.commit(a_commit(key, usage=(replace(CALL, source="tool"),)))
    report = await (await harness.open()).usage.report(key)
    assert _sums(report.total) == (3, 9, 60, 900, 12000, 150000)
    assert {model: _sums(sums) for model, sums in report.by_model.items()} == {
        "m-1": (2, 2, 40, 600, 8000, 100000),
        "m-2": (1, 7, 20, 300, 4000, 50000),
    }
    assert {source: _sums(sums) for source, sums in report.by_source.items()} == {
        "ask": (2, 8, 40, 600, 8000, 100000),
        "tool": (1, 1, 20, 300, 4000, 50000),
    }
    assert report.sessions == 1
    kept = await rows(store, "usage", "operation_id", "ordinal", "run_id", "source", "model")
    assert turn.run is not None
    assert (turn.operation_id, 1, turn.run.run_id, "ask", "m-2") in kept


async def test_a_repeated_commit_counts_once_and_a_second_call_is_a_second_row(store: Store) -> None:
    """Equal calls in one commit are two rows."""
    key, _ = await a_session(store)
    commit = a_commit(key, usage=(CALL, CALL))
    await store.commit(commit)
    async with unchanged(store):
        assert (await store.commit(commit)).replayed
    assert (await store.usage.report(key)).total.calls == 2
    with pytest.raises(OperationConflict):
        await store.commit(replace(commit, usage=(CALL,)))


async def test_rows_with_reasoning_tokens_only_are_kept(store: Store) -> None:
    key, _ = await a_session(store)
    await store.commit(a_commit(key, usage=(NewUsage(model="m", reasoning=5),)))
    assert _sums((await store.usage.report(key)).total) == (1, 0, 0, 0, 0, 5)


@needs(Capability.PROBES)
@pytest.mark.parametrize("count", [-1, MOST + 1, 1.5, True, None, "7"])
async def test_counts_out_of_range_are_refused_before_any_statement(store: Store, count: Any) -> None:
    key, _ = await a_session(store)
    wrong = {
        name: replace(CALL, **{name: count}) for name in ("input", "output", "cache_read", "cache_write", "reasoning")
    }
    calls = {name: (lambda usage=usage: store.commit(a_commit(key, usage=(usage,)))) for name, usage in wrong.items()}
    with statements(store) as seen:
        assert await not_refused(InvalidInput, calls) == {}
        with pytest.raises(InvalidInput):
            await store.commit(a_commit(key, usage=(replace(CALL, model=""),)))
    assert seen == []


async def test_a_sum_out_of_range_is_a_typed_error(store: Store) -> None:
    """Exact up to the limit, and refused beyond it, however many rows."""
    key, _ = await a_session(store)
    await store.commit(a_commit(key, usage=(NewUsage(model="m", input=MOST - 1), NewUsage(model="n", input=1))))
    assert (await store.usage.report(key)).total.input == MOST
    await store.commit(a_commit(key, usage=tuple(NewUsage(model="m", input=MOST) for _ in range(1100))))
    with pytest.raises(UsageOutOfRange):
        await store.usage.report(key)


async def test_the_children_are_added_where_asked_for(store: Store) -> None:
    """The whole tree, each once; without asking, the session alone. An unknown one has used nothing."""
    root, _ = await a_session(store)
    child, _ = await a_session(store, profile=Profile(parent=root.session_id))
    grandchild, _ = await a_session(store, profile=Profile(parent=child.session_id))
    other, _ = await a_session(store)
    for number, key in enumerate((root, child, grandchild, other)):
        await store.commit(a_commit(key, usage=(NewUsage(model="m", input=10**number),)))
    assert (await store.usage.report(root)).total.input == 1
    report = await store.usage.report(root, cascade=True)
    assert (report.total.input, report.sessions) == (111, 3)
    assert _sums((await store.usage.report(a_key())).total) == (0, 0, 0, 0, 0, 0)


@needs(Capability.PROBES)
async def test_the_usage_of_one_run_is_told_apart(harness: Harness) -> None:
    """Not that of other runs, of commits without a run, or of other sessions; also after the run was pruned."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    runs = [an_id("run") for _ in range(2)]
    for number, run_id in enumerate(runs):
        begin = BeginRun(run_id=run_id, invocation_id=f"inv-{run_id}")
        call = replace(CALL, model=f"m-{number}", input=10**number)
        await store.commit(a_commit(key, run=begin, usage=(call,)))
        end = EndRun(status=RunStatus.COMPLETED)
        await store.commit(a_commit(key, run=RunRef(run_id=run_id), end=end, usage=(call,)))
    await store.commit(a_commit(key, usage=(replace(CALL, input=100),)))
    clock.advance(1)
    for pruned in (0, 2):
        report = await store.usage.report(key, run_id=runs[1])
        assert (_sums(report.total), set(report.by_model)) == ((2, 20, 40, 600, 8000, 100000), {"m-1"})
        assert (await store.usage.report(key)).total.input == 122
        assert (await store.upkeep.prune(runs_older_than=0)).runs == 2 - pruned
    for asked, run_id in ((other, runs[1]), (key, "nobody"), (a_key(), runs[1])):
        assert (await store.usage.report(asked, run_id=run_id)).total.calls == 0
    with statements(store) as seen:
        with pytest.raises(InvalidInput):
            await store.usage.report(key, run_id=runs[1], cascade=True)
        with pytest.raises(InvalidInput):
            await store.usage.report(key, run_id="")
    assert seen == []


async def test_delete_removes_the_usage_and_a_fork_takes_none_along(store: Store) -> None:
    """It is counted, and another session's stays."""
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    fork = a_key()
    for each in (key, other):
        await store.commit(a_commit(each, usage=(CALL,)))
    await store.fork(key, fork)
    assert (await store.usage.report(fork)).total.calls == 0
    assert (await store.delete(key)).usage == 1
    await a_session(store, key=key)
    assert (await store.usage.report(key)).total.calls == 0
    assert (await store.usage.report(other)).total.calls == 1


@needs(Capability.PROBES)
async def test_a_failure_at_any_statement_of_usage_leaves_no_trace(store: Store) -> None:
    key, _ = await a_session(store)
    commit = a_commit(key, usage=(CALL,))
    receipt, failed = await fail_at_each_statement(store, lambda: store.commit(commit))
    assert not receipt.replayed
    assert "insert_usage" in failed
