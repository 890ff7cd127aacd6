"""One random history on SQLite and PostgreSQL side by side: no difference in any answer or any row."""

import asyncio
import json
import re
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import asdict, is_dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tenuto import Store, TenutoError, open_store
from tenuto.ids import new_id
from tenuto.model.commit import Append, BeginRun, Commit, EndRun, NewCheckpoint, OpenWait, Reset, SettleWait, TakeRun
from tenuto.model.effect import EffectChange, EffectKind, FinishEffect, SettleEffect, StartEffect
from tenuto.model.event import NewEvent
from tenuto.model.input import Boundary, Consume, InputKind, NewInput
from tenuto.model.lane import Lane, Owner, Rearm
from tenuto.model.outgoing_item import NewOutgoing, OutgoingStatus
from tenuto.model.run import RunRef, RunStatus, StopKind
from tenuto.model.session import LogEnd, SessionKey, SessionRecord, SessionStatus
from tenuto.model.token_usage import NewUsage
from tenuto.testing.fake_clock import FakeClock
from tests.servers import Postgres

IDS = ("ada", "bea", "cyd")
ENDS = {"heads", "ends", "base_ends"}
MINTED = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

ids = st.sampled_from(IDS)
small = st.integers(0, 3)
items = st.lists(st.integers(0, 9), max_size=3).map(tuple)
big_or_small = st.sampled_from([1, "text", None, {"deep": [1.5]}, "x" * 1500, "y" * 1500])


class World:
    """One store and what a client of it has seen: lanes, waits, runs."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.lanes: dict[str, Lane] = {}
        self.waits: list[str] = []
        self.inputs: list[str] = []
        self.outgoing: list[str] = []
        self._names: dict[str, str] = {}

    def name(self, text: str, *, new: bool = False) -> str:
        """Return text with the ids that are minted anew in each world replaced by when they were first seen."""

        def label(found: re.Match[str]) -> str:
            if new:
                self._names.setdefault(found[0], f"id {len(self._names)}")
            return self._names.get(found[0], "an id")

        return MINTED.sub(label, text)


class SideBySide(RuleBasedStateMachine):
    postgres_url = ""

    @initialize()
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.folder = tempfile.TemporaryDirectory()
        self.operations = 0
        self.runs: list[tuple[str, str]] = []
        schema = f"s_{new_id().replace('-', '_')}"
        self.worlds = {
            "sqlite": World(self.run(_open(f"sqlite:///{self.folder.name}/s.db", clock=self.clock, synchronous="OFF"))),
            "postgres": World(self.run(_open(self.postgres_url, clock=self.clock, schema=schema, pool_size=2))),
        }

    def run(self, awaitable: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(awaitable)

    def everywhere(self, act: Callable[[World], Awaitable[Any]]) -> None:
        """Do the same in every world; the answers, errors included, must be the same."""
        self.clock.advance(0.001)
        answers = {name: self.run(_answer(act, world)) for name, world in self.worlds.items()}
        told = {name: _plain(answer, self.worlds[name]) for name, answer in answers.items()}
        assert told["sqlite"] == told["postgres"]

    def operation(self) -> str:
        self.operations += 1
        return f"op-{self.operations}"

    @rule(id_=ids, state=st.dictionaries(st.sampled_from("pq"), big_or_small), first=items)
    def create(self, id_: str, state: dict[str, Any], first: tuple[int, ...]) -> None:
        operation = self.operation()
        self.everywhere(
            lambda w: w.store.create(id_, state=state | {"log": list(first)}, logs={"log"}, operation_id=operation)
        )

    @rule(id_=ids, state=st.dictionaries(st.sampled_from("pqr"), big_or_small), log=items, expected=st.none() | small)
    def save(self, id_: str, state: dict[str, Any], log: tuple[int, ...], expected: int | None) -> None:
        record = SessionRecord(session_id=id_, state=state | {"log": list(log)}, logs=frozenset({"log"}))
        self.everywhere(lambda w: _without_id(w.store.save(id_, record, expected_version=expected)))

    @rule(
        id_=ids, more=items, reset=st.booleans(), laned=st.booleans(), field=st.sampled_from("pq"), value=big_or_small
    )
    def move_head(self, id_: str, more: tuple[int, ...], reset: bool, laned: bool, field: str, value: Any) -> None:
        operation = self.operation()
        write = Reset(items=more) if reset else Append(items=more)

        async def act(world: World) -> Any:
            lane = world.lanes.get(id_) if laned else None
            return await world.store.commit(
                Commit(
                    key=SessionKey(id_),
                    operation_id=operation,
                    life=await world.store.life(id_),
                    generation=lane.generation if lane else None,
                    save=True,
                    logs={"log": write},
                    document={field: value},
                    events=tuple(NewEvent(type="moved", data=each) for each in more),
                )
            )

        self.everywhere(act)
        self.everywhere(act)  # the repeat of a commit is known as one

    @rule(id_=ids, keep=small)
    def rewind(self, id_: str, keep: int) -> None:
        operation = self.operation()

        async def act(world: World) -> Any:
            head = await world.store.head(id_)
            end = head.ends.get("log") if head else None
            if head is None or end is None:
                return "nothing to rewind"
            point = LogEnd(end.session, end.branch, max(0, end.position - keep))
            logs = {"log": Reset(keep=point)}
            return await world.store.commit(
                Commit(key=SessionKey(id_), operation_id=operation, life=head.life, save=True, logs=logs)
            )

        self.everywhere(act)

    @rule(id_=ids, laned=st.booleans(), save=st.booleans(), more=items, before=st.booleans())
    def begin(self, id_: str, laned: bool, save: bool, more: tuple[int, ...], before: bool) -> None:
        operation = self.operation()
        run_id = f"run-{self.operations}"
        self.runs.append((id_, run_id))

        async def act(world: World) -> Any:
            lane = world.lanes.get(id_) if laned else None
            return await world.store.commit(
                Commit(
                    key=SessionKey(id_),
                    operation_id=operation,
                    life=await world.store.life(id_),
                    generation=lane.generation if lane else None,
                    run=BeginRun(run_id=run_id, invocation_id=f"inv-{run_id}"),
                    save=save,
                    logs={"log": Append(items=more)} if more else {},
                    checkpoint=NewCheckpoint(step=0, before=True) if before else None,
                )
            )

        self.everywhere(act)

    @rule(
        pick=st.integers(0, 20),
        attempt=st.integers(1, 2),
        more=items,
        save=st.booleans(),
        checkpoint=st.sampled_from([None, "after", "before"]),
        end=st.none() | st.sampled_from([RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.SUSPENDED]),
        waits=st.integers(0, 2),
        value=big_or_small,
    )
    def go_on(
        self,
        pick: int,
        attempt: int,
        more: tuple[int, ...],
        save: bool,
        checkpoint: str | None,
        end: RunStatus | None,
        waits: int,
        value: Any,
    ) -> None:
        if not self.runs:
            return
        id_, run_id = self.runs[pick % len(self.runs)]
        operation = self.operation()
        point = NewCheckpoint(step=1, cursor=[run_id], document={"p": value}, before=checkpoint == "before")

        async def act(world: World) -> Any:
            run = await world.store.runs.get(run_id)
            receipt = await world.store.commit(
                Commit(
                    key=SessionKey(id_),
                    operation_id=operation,
                    life=await world.store.life(id_),
                    generation=run.generation if run else None,
                    run=RunRef(run_id=run_id, attempt=attempt),
                    save=save,
                    logs={"log": Append(items=more), "inner/log": Append(items=more[:1])},
                    checkpoint=point if checkpoint else None,
                    open_waits=tuple(OpenWait(kind="signal", signal_id=f"s{n}", timeout=1.0) for n in range(waits)),
                    end=EndRun(status=end) if end else None,
                )
            )
            world.waits.extend(receipt.wait_ids)
            return receipt

        self.everywhere(act)

    @rule(pick=st.integers(0, 20))
    def take_run(self, pick: int) -> None:
        if not self.runs:
            return
        id_, run_id = self.runs[pick % len(self.runs)]
        operation = self.operation()

        async def act(world: World) -> Any:
            lane = world.lanes.get(id_)
            return await world.store.commit(
                Commit(
                    key=SessionKey(id_),
                    operation_id=operation,
                    life=await world.store.life(id_),
                    generation=lane.generation if lane else None,
                    run=TakeRun(run_id=run_id, attempt=1),
                )
            )

        self.everywhere(act)

    @rule(id_=ids, pick=st.integers(0, 20), late=st.booleans())
    def settle(self, id_: str, pick: int, late: bool) -> None:
        operation = self.operation()

        async def act(world: World) -> Any:
            if not world.waits:
                return "nothing waits"
            settled = SettleWait(wait_id=world.waits[pick % len(world.waits)], answer={"ok": True}, late=late)
            life = await world.store.life(id_)
            return await world.store.commit(
                Commit(key=SessionKey(id_), operation_id=operation, life=life, settle_waits=(settled,))
            )

        self.everywhere(act)

    @rule(
        id_=ids,
        kind=st.sampled_from(InputKind),
        key=st.none() | st.sampled_from(["k1", "k2"]),
        boundary=st.none() | st.sampled_from(Boundary),
        delay=st.none() | st.just(0.004),
        body=small,
    )
    def enqueue(
        self, id_: str, kind: InputKind, key: str | None, boundary: Boundary | None, delay: float | None, body: int
    ) -> None:
        async def act(world: World) -> Any:
            new = NewInput(kind=kind, body=body, key=key, boundary=boundary, delay=delay)
            sent = await world.store.inbox.enqueue(id_, new)
            world.inputs.append(sent.input.input_id)
            return sent

        self.everywhere(act)

    @rule(id_=ids, picks=st.lists(st.integers(0, 20), max_size=3))
    def cancel(self, id_: str, picks: list[int]) -> None:
        async def act(world: World) -> Any:
            known = [world.inputs[pick % len(world.inputs)] for pick in picks if world.inputs]
            return await world.store.inbox.cancel(id_, known)

        self.everywhere(act)

    @rule(id_=ids, pick=st.integers(0, 20), bring=st.booleans(), end=st.booleans(), laned=st.booleans())
    def take_input(self, id_: str, pick: int, bring: bool, end: bool, laned: bool) -> None:
        operation = self.operation()
        run_id = f"run-{self.operations}"
        self.runs.append((id_, run_id))

        async def act(world: World) -> Any:
            may = await world.store.inbox.next(id_)
            taken = [each.input_id for each in may.inputs]
            if pick < 5 and world.inputs:
                taken = [world.inputs[pick % len(world.inputs)]]  # perhaps not there to be taken
            new = NewInput(kind=InputKind.MESSAGE, body=pick, key=f"k{pick % 4}", log="log", item=0)
            lane = world.lanes.get(id_) if laned else None
            receipt = await world.store.commit(
                Commit(
                    key=SessionKey(id_),
                    operation_id=operation,
                    life=await world.store.life(id_),
                    generation=lane.generation if lane else None,
                    run=BeginRun(run_id=run_id, invocation_id=f"inv-{run_id}"),
                    save=True,
                    logs={"log": Append(items=(pick,))},
                    consume=tuple(Consume(input_id=each, log="log", item=0) for each in taken),
                    inputs=(new,) if bring else (),
                    end=EndRun(status=RunStatus.COMPLETED) if end else None,
                )
            )
            world.inputs += receipt.input_ids
            return [may, receipt]

        self.everywhere(act)

    @rule(pick=st.integers(0, 20), boundary=st.sampled_from(Boundary))
    def steer(self, pick: int, boundary: Boundary) -> None:
        if not self.runs:
            return
        id_, run_id = self.runs[pick % len(self.runs)]
        operation = self.operation()

        async def act(world: World) -> Any:
            run = await world.store.runs.get(run_id)
            may = await world.store.inbox.next(id_, boundary=boundary, run_id=run_id)
            receipt = await world.store.commit(
                Commit(
                    key=SessionKey(id_),
                    operation_id=operation,
                    life=await world.store.life(id_),
                    generation=run.generation if run else None,
                    run=RunRef(run_id=run_id),
                    consume=tuple(Consume(input_id=each.input_id) for each in may.inputs),
                    rolls_back=run_id if pick % 3 == 0 else None,
                    sees_stop=pick % 4 == 0,
                )
            )
            return [may, receipt]

        self.everywhere(act)

    @rule(
        pick=st.integers(0, 20),
        attempt=st.integers(1, 2),
        changes=st.lists(st.tuples(st.sampled_from(["start", "finish", "fail", "settle"]), small, small), max_size=3),
        end=st.none() | st.sampled_from([RunStatus.COMPLETED, RunStatus.FAILED]),
    )
    def call_outside(self, pick: int, attempt: int, changes: list[tuple[str, int, int]], end: RunStatus | None) -> None:
        if not self.runs:
            return
        id_, run_id = self.runs[pick % len(self.runs)]
        operation = self.operation()

        async def act(world: World) -> Any:
            run = await world.store.runs.get(run_id)
            receipt = await world.store.commit(
                Commit(
                    key=SessionKey(id_),
                    operation_id=operation,
                    life=await world.store.life(id_),
                    generation=run.generation if run else None,
                    run=RunRef(run_id=run_id, attempt=attempt),
                    effects=tuple(_effect(*change) for change in changes),
                    usage=tuple(NewUsage(model=f"m{step}", input=step, reasoning=key) for _, step, key in changes),
                    outgoing=tuple(NewOutgoing(kind=kind, target=SessionKey(id_)) for kind, _, _ in changes),
                    end=EndRun(status=end) if end else None,
                )
            )
            world.outgoing += receipt.outgoing_ids
            return receipt

        self.everywhere(act)

    @rule(pick=st.integers(0, 20), status=st.sampled_from(OutgoingStatus), retry=st.none() | st.just(0.004))
    def mark(self, pick: int, status: OutgoingStatus, retry: float | None) -> None:
        async def act(world: World) -> Any:
            if not world.outgoing:
                return "nothing sent"
            return await world.store.outbox.mark(world.outgoing[pick % len(world.outgoing)], status, retry_in=retry)

        self.everywhere(act)

    @rule(pick=st.integers(0, 20), kind=st.none() | st.sampled_from(StopKind))
    def stop(self, pick: int, kind: StopKind | None) -> None:
        if not self.runs:
            return
        _, run_id = self.runs[pick % len(self.runs)]
        if kind is None:
            self.everywhere(lambda w: w.store.runs.withdraw_stop(run_id))
        else:
            self.everywhere(lambda w: w.store.runs.request_stop(run_id, kind, "why"))

    @rule(id_=ids, nonce=st.sampled_from(["n1", "n2"]), ttl=st.sampled_from([0.01, 5.0]))
    def acquire(self, id_: str, nonce: str, ttl: float) -> None:
        async def act(world: World) -> Any:
            lane = await world.store.lanes.acquire(id_, Owner(owner_id=nonce, incarnation="1"), nonce=nonce, ttl=ttl)
            world.lanes[id_] = lane
            return lane

        self.everywhere(act)

    @rule(id_=ids)
    def rearm(self, id_: str) -> None:
        operation = self.operation()

        async def act(world: World) -> Any:
            head = await world.store.head(id_)
            if head is None:
                return "no head"
            commit = Commit(
                key=SessionKey(id_),
                operation_id=operation,
                life=head.life,
                generation=head.generation,
                expected_commit=head.commit_number,
                rearm=Rearm(nonce=operation, ttl=5.0),
                disarm=head.commit_number % 2 == 0,
            )
            return await world.store.commit(commit)

        self.everywhere(act)

    @rule(id_=ids, verb=st.sampled_from(["renew", "disarm", "events"]))
    def use_lane(self, id_: str, verb: str) -> None:
        async def act(world: World) -> Any:
            lane = world.lanes.get(id_)
            if lane is None:
                return "no lane"
            if verb == "renew":
                return await world.store.lanes.renew([lane], ttl=3.0)
            if verb == "disarm":
                return await world.store.lanes.disarm(lane)
            return await world.store.events.append(lane, [NewEvent(type="chunk", data=n) for n in range(3)])

        self.everywhere(act)

    @rule(source=ids, fork_id=ids, checkpoint=st.booleans())
    def fork(self, source: str, fork_id: str, checkpoint: bool) -> None:
        operation = self.operation()

        async def act(world: World) -> Any:
            latest = await world.store.checkpoints.latest(source) if checkpoint else None
            at = latest.commit_number if latest else None
            return await world.store.fork(source, fork_id, at=at, operation_id=operation)

        self.everywhere(act)

    @rule(id_=ids, status=st.sampled_from(list(SessionStatus)[:4]), title=st.none() | st.just("T"))
    def describe(self, id_: str, status: SessionStatus, title: str | None) -> None:
        operation = self.operation()

        async def act(world: World) -> Any:
            life = await world.store.life(id_)
            commit = Commit(
                key=SessionKey(id_),
                operation_id=operation,
                life=life,
                status=status,
                profile={"title": title, "tags": ["a", "b"]},
            )
            return await world.store.commit(commit)

        self.everywhere(act)

    @rule(id_=ids)
    def delete(self, id_: str) -> None:
        self.everywhere(lambda w: w.store.delete(id_))

    @rule(grace=st.sampled_from([0.0, 1.0]), seconds=st.sampled_from([0.1, 10.0]))
    def collect(self, grace: float, seconds: float) -> None:
        self.clock.advance(seconds)
        self.everywhere(lambda w: w.store.upkeep.gc(grace=grace))

    @rule(age=st.sampled_from([0.0, 5.0]))
    def prune(self, age: float) -> None:
        ages: dict[str, Any] = {
            f"{name}_older_than": age for name in ("receipts", "events", "runs", "inputs", "outgoing")
        }
        self.everywhere(lambda w: w.store.upkeep.prune(**ages))

    @rule(id_=ids, after=small)
    def look(self, id_: str, after: int) -> None:
        self.everywhere(lambda w: w.store.load(id_))
        self.everywhere(lambda w: w.store.list({"tag": "a"}))
        self.everywhere(lambda w: w.store.events.read(id_, after=after))
        self.everywhere(lambda w: w.store.lanes.inspect(id_))
        self.everywhere(lambda w: w.store.lanes.orphans())
        self.everywhere(lambda w: w.store.runs.of_session(id_))
        self.everywhere(lambda w: w.store.checkpoints.of_session(id_))
        self.everywhere(lambda w: w.store.waits.of_session(id_, status=None))
        self.everywhere(lambda w: w.store.inbox.list(id_))
        self.everywhere(lambda w: w.store.inbox.next(id_))
        self.everywhere(lambda w: w.store.inbox.next(id_, boundary=Boundary.AFTER_STEP))
        self.everywhere(_due)
        self.everywhere(lambda w: w.store.effects.list(id_))
        self.everywhere(lambda w: w.store.effects.list(id_, in_doubt=True))
        self.everywhere(lambda w: w.store.usage.report(id_, cascade=True))
        self.everywhere(lambda w: w.store.outbox.pending())
        self.everywhere(lambda w: w.store.outbox.next_due())
        self.everywhere(lambda w: w.store.inbox.next_due())
        self.everywhere(lambda w: w.store.stamp(id_))
        run_ids = [run_id for _, run_id in self.runs]
        self.everywhere(lambda w: w.store.runs.stops(run_ids))
        for run_id in run_ids[-3:]:
            self.everywhere(partial(_of_run, id_, run_id))

    @invariant()
    def rows_are_equal(self) -> None:
        if not hasattr(self, "worlds"):
            return
        dumps = {name: self.run(world.store.dump()) for name, world in self.worlds.items()}
        told = {name: _rows(dump, self.worlds[name]) for name, dump in dumps.items()}
        assert told["sqlite"] == told["postgres"]

    def teardown(self) -> None:
        for world in self.worlds.values():
            self.run(world.store.aclose())
        self.loop.close()
        self.folder.cleanup()


async def _open(url: str, **options: Any) -> Store:
    return await open_store(url, **options)


async def _answer(act: Callable[[World], Awaitable[Any]], world: World) -> Any:
    try:
        return await act(world)
    except TenutoError as error:
        return ["refused", type(error).__name__, error.category]


def _effect(verb: str, step: int, key: int) -> EffectChange:
    match verb:
        case "start":
            return StartEffect(key=f"e{key}", step=step, kind=EffectKind.TOOL, request=[step, key])
        case "finish":
            return FinishEffect(key=f"e{key}", step=step, result=key)
        case "fail":
            return FinishEffect(key=f"e{key}", step=step, error="why")
        case _:
            return SettleEffect(key=f"e{key}", step=step, result="so be it")


async def _due(world: World) -> Any:
    return sorted(await world.store.inbox.due())


async def _of_run(id_: str, run_id: str, world: World) -> Any:
    waits = await world.store.waits.of_invocation(id_, f"inv-{run_id}")
    return waits, await world.store.usage.report(id_, run_id=run_id)


async def _without_id(receipt: Awaitable[Any]) -> Any:
    told = asdict(await receipt)
    return {name: value for name, value in told.items() if name != "operation_id"}


def _plain(value: Any, world: World) -> Any:
    """Return an answer without what each backend numbers in its own way: row numbers of sessions, minted ids."""
    if isinstance(value, LogEnd):
        return ("end", value.branch, value.position)
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(getattr(value, name), world) for name in value.__dataclass_fields__}
    if isinstance(value, dict):
        return {_plain(name, world): _plain(each, world) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, world) for each in value]
    if isinstance(value, frozenset):
        return sorted(map(str, value))
    return world.name(value, new=True) if isinstance(value, str) else value


def _rows(dump: dict[str, list[dict[str, Any]]], world: World) -> dict[str, list[Any]]:
    order = {row["sid"]: rank for rank, row in enumerate(dump["session"])}
    known = {row["session_id"]: rank for rank, row in enumerate(sorted(dump["session"], key=lambda r: r["session_id"]))}
    rank = {row["sid"]: known[row["session_id"]] for row in dump["session"]}
    assert len(order) == len(rank)
    return {table: sorted((_row(row, rank, world) for row in rows), key=repr) for table, rows in dump.items()}


def _row(row: dict[str, Any], rank: dict[int, int], world: World) -> dict[str, Any]:
    told = dict(row)
    for name in ("sid", "session", "family", "forked_sid"):
        if told.get(name) is not None:
            told[name] = rank.get(told[name], "gone")
    for name in ENDS & told.keys():
        if told[name]:
            ends = json.loads(told[name])
            told[name] = {log: [rank.get(end[0], "gone"), *end[1:]] for log, end in ends.items()}
    if "lineage" in told:
        told["lineage"] = [[rank.get(part[0], "gone"), *part[1:]] for part in json.loads(told["lineage"])]
    told.pop("intent", None)  # it covers the ends, whose row numbers differ
    return {name: world.name(value) if isinstance(value, str) else value for name, value in told.items()}


@pytest.fixture(scope="module", autouse=True)
def _server(postgres: Postgres) -> None:
    SideBySide.postgres_url = postgres.url


def _run(examples: int, steps: int, *, anew: bool = False) -> None:
    run_state_machine_as_test(
        SideBySide,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=not anew,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking takes minutes; add it to study a failure
        ),
    )


def test_both_backends_tell_the_same_story() -> None:
    _run(examples=12, steps=25)


@pytest.mark.soak
def test_both_backends_tell_the_same_long_stories() -> None:
    _run(examples=150, steps=60, anew=True)
