"""Random histories on SQLite, PostgreSQL and the model side by side: the same answers, refusals and sessions."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tenuto import Store, TenutoError, open_store
from tenuto.clock import to_datetime
from tenuto.ids import new_id
from tenuto.model.commit import Append, Commit, LogWrite, NewCheckpoint, Receipt, Reset
from tenuto.model.event import NewEvent
from tenuto.model.lane import Lane, Owner
from tenuto.model.session import SessionKey, SessionRecord, SessionStatus
from tenuto.testing.fake_clock import FakeClock
from tests.servers import Postgres
from tests.store.model import Change, Model, Refused

IDS = ("ada", "bea", "cyd", "dov")
STATUSES = [str(status) for status in SessionStatus if status is not SessionStatus.DELETED]

ids = st.sampled_from(IDS)
near = st.integers(-1, 1)
items = st.lists(st.integers(0, 9), max_size=3)
fields = st.dictionaries(st.sampled_from("pq"), st.sampled_from([1, None, {"deep": [1.5]}, "x" * 1500, "y" * 1500]))
logs = st.fixed_dictionaries({"log": items}, optional={"notes": items})


class Held(NamedTuple):
    """A lane that somebody was granted."""

    session_id: str
    life: int
    generation: int
    nonce: str


class BesideTheModel(RuleBasedStateMachine):
    """Every rule is done to the model and to both databases."""

    postgres_url = ""

    @initialize()
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.folder = tempfile.TemporaryDirectory()
        self.model = Model()
        self.operations: list[str] = []
        self.held: list[Held] = []
        self.repeats: list[Callable[[], None]] = []
        schema = f"m_{new_id().replace('-', '_')}"
        self.stores = {
            "sqlite": self.run(_open(f"sqlite:///{self.folder.name}/s.db", clock=self.clock, synchronous="OFF")),
            "postgres": self.run(_open(self.postgres_url, clock=self.clock, schema=schema, pool_size=2)),
        }

    def run(self, awaitable: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(awaitable)

    def both(self, model: Callable[[], Any], act: Callable[[Store], Awaitable[Any]]) -> Any:
        """Ask the model and the databases; whatever they answer must be the same."""
        self.clock.advance(0.25)
        self.model.now += 0.25
        try:
            expected = model()
        except Refused as refused:
            expected = ("refused", str(refused))
        for name, store in self.stores.items():
            assert self.run(_answer(act, store)) == expected, name
        return expected

    def operation(self) -> str:
        self.operations.append(f"op-{len(self.operations)}")
        return self.operations[-1]

    @rule(id_=ids, state=fields, first=logs)
    def create(self, id_: str, state: dict[str, Any], first: dict[str, list[Any]]) -> None:
        operation = self.operation()

        def again() -> None:
            self.both(
                lambda: self.model.create(id_, state, first, operation),
                lambda s: _told(s.create(id_, state=state | first, logs=set(first), operation_id=operation)),
            )

        again()
        self.repeats.append(again)

    @rule(id_=ids, state=fields, log=logs, off=st.none() | near)
    def save(self, id_: str, state: dict[str, Any], log: dict[str, list[Any]], off: int | None) -> None:
        version = None if off is None else max(0, self.model.of(id_).version + off)
        record = SessionRecord(session_id=id_, state=state | log, logs=frozenset(log))
        self.both(
            lambda: self.model.save(id_, state, log, version),
            lambda s: _told(s.save(id_, record, expected_version=version)),
        )

    @rule(
        id_=ids,
        state=fields,
        more=logs,
        reset=st.booleans(),
        lane=st.sampled_from(["none", "own", "last"]),
        events=st.lists(st.integers(0, 9), max_size=2),
        status=st.none() | st.sampled_from(STATUSES),
        point=st.booleans(),
    )
    def commit(
        self,
        id_: str,
        state: dict[str, Any],
        more: dict[str, list[Any]],
        reset: bool,
        lane: str,
        events: list[int],
        status: str | None,
        point: bool,
    ) -> None:
        held = [each for each in self.held if lane == "last" or each.session_id == id_][-1:] if lane != "none" else []
        self.committed(
            id_,
            generation=held[0].generation if held else None,
            fields=state,
            append={} if reset else more,
            reset=more if reset else {},
            events=[("told", each) for each in events],
            status=status,
            point=point,
        )

    @rule(id_=ids, guard=st.sampled_from(["life", "version", "commit", "stream_at"]), off=near)
    def guarded(self, id_: str, guard: str, off: int) -> None:
        now = self.model.of(id_)
        stands = {"life": now.life, "version": now.version, "commit": now.commits, "stream_at": now.events}
        self.committed(id_, fields={"p": guard}, **{guard: max(0, stands[guard] + off)})

    @rule(id_=ids, drop=st.integers(1, 3))
    def rewind(self, id_: str, drop: int) -> None:
        kept = {name: max(0, len(entries) - drop) for name, entries in self.model.of(id_).logs.items()}
        self.committed(id_, keep=kept, events=[("rewound", drop)], point=True)

    def committed(self, id_: str, **parts: Any) -> None:
        change = Change(**{"life": self.model.of(id_).life, "operation": self.operation(), **parts})

        def again() -> None:
            self.both(lambda: self.model.commit(id_, change), lambda s: _told(_commit(s, id_, change)))

        again()
        if not change.keep:  # whose point is another one once the log has moved
            self.repeats.append(again)

    @rule(pick=st.integers(0, 50))
    def repeat(self, pick: int) -> None:
        if self.repeats:
            self.repeats[pick % len(self.repeats)]()

    @rule(source=ids, fork_id=ids, back=st.none() | st.integers(0, 1))
    def fork(self, source: str, fork_id: str, back: int | None) -> None:
        operation = self.operation()
        at = None if back is None else max(0, self.model.of(source).commits - back)

        def again() -> None:
            self.both(
                lambda: self.model.fork(source, fork_id, at, operation),
                lambda s: _told(s.fork(source, fork_id, at=at, operation_id=operation)),
            )

        again()
        self.repeats.append(again)

    @rule(id_=ids)
    def delete(self, id_: str) -> None:
        async def act(store: Store) -> int:
            return (await store.delete(id_)).sessions

        self.both(lambda: self.model.delete(id_), act)

    @rule(id_=ids, nonce=st.sampled_from(["n1", "n2"]), ttl=st.sampled_from([0.5, 5.0]))
    def acquire(self, id_: str, nonce: str, ttl: float) -> None:
        async def act(store: Store) -> Any:
            lane = await store.lanes.acquire(id_, Owner(owner_id="o", incarnation="1"), nonce=nonce, ttl=ttl)
            return lane.life, lane.generation, lane.displaced.generation if lane.displaced else None

        granted = self.both(lambda: self.model.acquire(id_, nonce, ttl), act)
        if granted[0] != "refused":
            self.held.append(Held(id_, granted[0], granted[1], nonce))

    @rule(pick=st.integers(0, 20))
    def disarm(self, pick: int) -> None:
        if self.held:
            held = self.held[pick % len(self.held)]
            self.both(lambda: self.model.disarm(*held), lambda s: s.lanes.disarm(_lane(held)))

    @rule(pick=st.integers(0, 20), count=st.integers(1, 3))
    def tell(self, pick: int, count: int) -> None:
        if not self.held:
            return
        held, events = self.held[pick % len(self.held)], [("chunk", each) for each in range(count)]
        self.both(
            lambda: self.model.tell(*held[:3], events),
            lambda s: s.events.append(_lane(held), [NewEvent(type=kind, data=data) for kind, data in events]),
        )

    @rule(seconds=st.sampled_from([1.0, 6.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.model.now += seconds

    @invariant()
    def sessions_are_equal(self) -> None:
        if not hasattr(self, "stores"):
            return
        for name, store in self.stores.items():
            for id_ in IDS:
                assert self.run(_shown(store, id_)) == _expected(self.model, id_), (name, id_)
            living = {id_ for id_ in IDS if self.model.of(id_).alive}
            assert {each.key.session_id for each in self.run(store.list())} == living, name

    def teardown(self) -> None:
        for store in self.stores.values():
            self.run(store.aclose())
        self.loop.close()
        self.folder.cleanup()


async def _open(url: str, **options: Any) -> Store:
    return await open_store(url, **options)


async def _answer(act: Callable[[Store], Awaitable[Any]], store: Store) -> Any:
    try:
        return await act(store)
    except TenutoError as error:
        return "refused", type(error).__name__


async def _told(receipt: Awaitable[Receipt]) -> Any:
    told = await receipt
    return told.life, told.commit_number, told.version, told.generation, told.event_seq, told.replayed


def _lane(held: Held) -> Lane:
    return Lane(
        key=SessionKey(held.session_id),
        life=held.life,
        generation=held.generation,
        nonce=held.nonce,
        owner=Owner(owner_id="o", incarnation="1"),
        claimed_at=to_datetime(0),
        expires_at=to_datetime(0),
    )


async def _commit(store: Store, id_: str, change: Change) -> Receipt:
    writes: dict[str, LogWrite] = {name: Append(items=tuple(each)) for name, each in change.append.items()}
    writes |= {name: Reset(items=tuple(each)) for name, each in change.reset.items()}
    if change.keep:
        head = await store.head(id_)
        assert head is not None
        writes |= {name: Reset(keep=head.ends[name]._replace(position=n)) for name, n in change.keep.items()}
    return await store.commit(
        Commit(
            key=SessionKey(id_),
            operation_id=change.operation,
            life=change.life,
            generation=change.generation,
            expected_version=change.version,
            expected_commit=change.commit,
            expected_events=change.stream_at,
            save=True,
            document=change.fields,
            logs=writes,
            events=tuple(NewEvent(type=kind, data=data) for kind, data in change.events),
            status=None if change.status is None else SessionStatus(change.status),
            checkpoint=NewCheckpoint(step=0, before=True) if change.point else None,
        )
    )


async def _shown(store: Store, id_: str) -> Any:
    life, record, page = await store.life(id_), await store.load(id_), await store.events.read(id_)
    stream = [(event.type, event.data) for event in page.events]
    lane = await store.lanes.inspect(id_)
    if record is None or record.head is None:
        return life, page.tail, page.floor, stream, lane and lane.generation, None
    head = record.head
    numbers = head.version, head.commit_number, head.generation, str(head.status)
    return life, page.tail, page.floor, stream, lane and lane.generation, (numbers, record.state, set(record.logs))


def _expected(model: Model, id_: str) -> Any:
    session = model.of(id_)
    shown = None
    if session.alive:
        numbers = session.version, session.commits, session.generation, session.status
        shown = numbers, session.fields | session.logs, set(session.logs)
    return session.life, session.events, session.event_floor, session.stream, session.generation or None, shown


@pytest.fixture(scope="module", autouse=True)
def _server(postgres: Postgres) -> None:
    BesideTheModel.postgres_url = postgres.url


def _run(examples: int, steps: int, *, anew: bool = False) -> None:
    run_state_machine_as_test(
        BesideTheModel,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=not anew,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking takes minutes; add it to study a failure
        ),
    )


@pytest.mark.long("many histories on two databases")
def test_both_databases_do_what_the_model_does() -> None:
    _run(examples=12, steps=30)


@pytest.mark.soak
def test_both_databases_do_what_the_model_does_in_long_histories() -> None:
    _run(examples=200, steps=80, anew=True)
