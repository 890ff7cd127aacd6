"""One run: set the stage, let everybody loose, do the faults of the plan, drain what is left, and judge."""

import asyncio
import json
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from tenuto import SessionRuntime
from tenuto.errors import TenutoError
from tests.chaos import plan as faults
from tests.chaos.audit.evidence import ROLLED_BACK, Evidence
from tests.chaos.audit.judge import judge, judge_kept, judge_remains
from tests.chaos.audit.violation import Violation
from tests.chaos.cast import CAST
from tests.chaos.closing import Closing
from tests.chaos.crew import Crew
from tests.chaos.ledger import FAULT, FRAME, Ledger, Note, read_notes
from tests.chaos.plan import Fault, Plan
from tests.chaos.process import READER, WORKER, Post, opened
from tests.chaos.programs import World, programs
from tests.chaos.proxy import Proxy, proxied, through
from tests.chaos.sampler import Sampler
from tests.chaos.tables import AUDITOR, Query, Site, connected, read_tables

DRAIN_SECONDS = 30.0
"""How long the drain goes on although nothing comes to its end."""

VIOLATED, DOES_NOT_COUNT = 1, 2
"""Exit codes."""

KEEP = "TENUTO_CHAOS_KEEP"
"""The environment variable that keeps the folder of a run, with the tables as the audit read them."""

_MEMORY = Path("/dev/shm")


@dataclass(slots=True, kw_only=True)
class Result:
    """What happened in a run, and what was found."""

    plan: Plan
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    short: list[str] = field(default_factory=list)

    @property
    def code(self) -> int:
        """The exit code: of a law that was broken, of a run in which too little happened, or 0."""
        return VIOLATED if self.violations else DOES_NOT_COUNT if self.short else 0


@dataclass(slots=True, kw_only=True)
class Stage:
    """Where a run plays."""

    plan: Plan
    folder: Path
    site: Site
    address: str
    options: dict[str, Any]
    proxy: Proxy | None = None

    def post(self, **who: Any) -> Post:
        """Return what a process is told."""
        return Post(
            **who,
            seed=self.plan.seed,
            address=self.address,
            options=self.options,
            folder=self.folder,
            bug=self.plan.bug,
        )


async def run(plan: Plan, url: str | None = None) -> Result:
    """Do a whole run; a PostgreSQL server has to be given."""
    folder = Path(tempfile.mkdtemp(prefix="tenuto-chaos-", dir=_MEMORY if _MEMORY.is_dir() else None))
    try:
        async with _stage(plan, folder, url) as stage:
            return await _play(stage)
    finally:
        if not os.environ.get(KEEP):
            shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def _stage(plan: Plan, folder: Path, url: str | None) -> AsyncIterator[Stage]:
    if plan.store == "sqlite":
        path = f"{folder}/chaos.db"
        yield Stage(plan=plan, folder=folder, site=Site(path=path), address=f"sqlite:///{path}", options={})
        return
    assert url is not None, "PostgreSQL needs a server"
    schema = f"chaos_{random.SystemRandom().randrange(1 << 40)}"
    site = Site(url=url, schema=schema)
    async with proxied(url) as proxy:
        address, options = through(url, proxy.port), {"schema": schema, "pool_size": 6}
        yield Stage(plan=plan, folder=folder, site=site, address=address, options=options, proxy=proxy)


async def _play(stage: Stage) -> Result:
    plan, sampler = stage.plan, Sampler()
    crew = Crew(stage.post)
    ledger = Ledger(stage.folder / "ledger" / "supervisor.jsonl")
    result = Result(plan=plan)
    direct = stage.site.url or stage.address
    async with (
        opened(direct, stage.options) as store,
        connected(stage.site) as ask,
        SessionRuntime(store, programs(World(stage.folder, "supervisor"))) as runtime,
    ):
        for role in CAST:
            await runtime.create(role.program, session_id=role.session)
        sampling = asyncio.create_task(sampler.sample(ask))
        try:
            crew.start()
            await _do_faults(stage, crew, ledger)
            await crew.calm()
            closing = Closing(stage.site, runtime, ledger, _notes(stage.folder))
            left = await closing.drain(DRAIN_SECONDS)
            await asyncio.sleep(0.3)  # readers hear the rest
            await crew.dismiss(WORKER, READER)
        finally:
            crew.abandon()
            sampling.cancel()
            with suppress(asyncio.CancelledError):
                await sampling
        if os.environ.get(KEEP):
            (stage.folder / "tables.json").write_text(json.dumps(await read_tables(stage.site)))
        evidence = Evidence.of(await read_tables(stage.site), _notes(stage.folder), _acts(stage.folder))
        result.counts = _counted(plan, evidence, sampler)
        result.violations = [*sampler.violations, *judge(evidence, left)]
        result.violations += [Violation("processes", "-", each) for each in crew.died]
        result.violations += await _judge_upkeep(stage.site, runtime, evidence)
        result.short = _short(plan, result.counts)
    return result


async def _judge_upkeep(site: Site, runtime: SessionRuntime, evidence: Evidence) -> list[Violation]:
    """Prune and collect all that may go, which changes no history, then delete all, which leaves nothing."""
    upkeep, ages = runtime.store.upkeep, ("receipts", "chunks", "runs", "inputs", "outgoing")
    await upkeep.prune(**{f"{name}_older_than": 0 for name in ages})
    await upkeep.gc(grace=0)
    kept = judge_kept(evidence, Evidence.of(await read_tables(site), [], []))
    while page := await runtime.list(limit=50):
        for each in page:
            with suppress(TenutoError):
                await runtime.session(each.session_id).delete(cascade=True)
    await upkeep.prune(**{f"{name}_older_than": 0 for name in ages})
    await upkeep.gc(grace=0)
    return kept + judge_remains(await read_tables(site))


async def _do_faults(stage: Stage, crew: Crew, ledger: Ledger) -> None:
    """Do the faults of the plan, each at its time, and wait until the time is over."""
    clock = asyncio.get_running_loop().time
    begun, lasting = clock(), set[asyncio.Task[None]]()
    async with connected(stage.site) as ask:
        for fault in stage.plan.faults():
            await asyncio.sleep(max(0.0, begun + fault.at - clock()))
            crew.look()
            task = asyncio.create_task(_do_fault(stage, crew, ledger, fault, ask))
            lasting.add(task)
            task.add_done_callback(lasting.discard)
        await asyncio.sleep(max(0.0, begun + stage.plan.seconds - clock()))
        await asyncio.gather(*lasting)


async def _do_fault(stage: Stage, crew: Crew, ledger: Ledger, fault: Fault, ask: Query) -> None:
    dice = random.Random(fault.whom)
    happened: bool
    match fault.kind:
        case faults.KILL:
            happened = crew.kill(fault.whom)
        case faults.STOP:
            happened = await crew.stand_still(fault.whom, fault.lasts)
        case faults.LEAVE:
            happened = await crew.leave(fault.whom)
        case faults.LOCK:
            happened = await _lock(str(stage.site.path), fault.lasts)
        case faults.TERMINATE:
            happened = await _terminate(dice, ask)
        case faults.CUT:
            happened = stage.proxy is not None and stage.proxy.cut(dice)
        case _:
            assert stage.proxy is not None
            happened = await stage.proxy.freeze(dice, fault.lasts, for_good=dice.random() < 0.5)
    if happened:
        ledger.write(FAULT, kind=fault.kind)


async def _lock(path: str, seconds: float) -> bool:
    """Lock the file from outside for a while, as a backup or a person with a shell does."""
    file = apsw.Connection(path)
    file.set_busy_timeout(100)
    try:
        for _ in range(20):
            with suppress(apsw.BusyError):
                file.execute("BEGIN IMMEDIATE")
                await asyncio.sleep(seconds)
                file.execute("ROLLBACK")
                return True
            await asyncio.sleep(0.01)
        return False
    finally:
        file.close()


async def _terminate(dice: random.Random, ask: Query) -> bool:
    """Terminate some of the server's processes that serve this run."""
    rows = await ask(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' "
        f"AND application_name <> '{AUDITOR}' ORDER BY pid"
    )
    some = [row["pid"] for row in rows if dice.random() < 0.1] or [row["pid"] for row in rows[:1]]
    for pid in some:
        await ask(f"SELECT pg_terminate_backend({int(pid)})")
    return bool(some)


def _notes(folder: Path) -> list[Note]:
    return read_notes((folder / "ledger").glob("*.jsonl"))


def _acts(folder: Path) -> list[Note]:
    return read_notes([folder / "acts"] if (folder / "acts").exists() else [])


def _counted(plan: Plan, evidence: Evidence, sampler: Sampler) -> dict[str, Counter[str]]:
    happened = Counter(dict.fromkeys(plan.kinds, 0))
    happened.update(note["kind"] for note in evidence.notes if note["note"] == FAULT)
    deeds = Counter(f"{deed}" for deed in (note.get("deed") for note in evidence.notes) if deed)
    tables = evidence.tables
    seen = Counter(
        {
            "accepted messages": len(evidence.accepted),
            "messages in logs": sum(len(markers) for markers in evidence.said.values()),
            "messages steered in": sum(row["boundary"] is not None for row in tables["input"]),
            "tool executions": len(evidence.acts),
            "frames read": sum(note["note"] == FRAME for note in evidence.notes),
            "samples": sampler.samples,
            "sessions": len(evidence.alive),
            "runs": len(tables["run"]),
            "runs taken over": sum(row["attempt"] > 1 for row in tables["run"]),
            "runs rolled back": sum(bool(row["holds"] & ROLLED_BACK) for row in tables["run"]),
            "runs resumed": sum(row["chain"] > 1 for row in tables["run"]),
        }
    )
    seen.update(f"waits: {row['kind']} {row['status']}" for row in tables["wait"])
    return {"faults": happened, "deeds": deeds, "seen": seen}


def _short(plan: Plan, counts: dict[str, Counter[str]]) -> list[str]:
    """Return what did not happen often enough."""
    wanted = [("kill", counts["faults"][faults.KILL], plan.least("kills"))]
    wanted.append(("accepted messages", counts["seen"]["accepted messages"], plan.least("accepted")))
    wanted += [(kind, counts["faults"][kind], plan.least("each kind")) for kind in plan.kinds]
    return [f"{what}: {count} of {least}" for what, count, least in wanted if count < least]
