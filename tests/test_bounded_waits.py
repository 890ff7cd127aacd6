"""Nothing waits without end, but in the few places named here with what ends their wait."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "tenuto"
ASIDE = {"testing"}

WITHOUT_ARGUMENTS = {"wait", "acquire", "get", "join"}
"""Of events, locks, queues and threads; our own verbs of these names are given what they are about."""

OF_ASYNCIO = {"gather", "shield", "to_thread", "run_in_executor"}
OF_CONNECTIONS = {"fetch", "fetchval", "fetchrow", "execute", "executemany", "close", "connect", "add_listener"}

ENDED_BY: dict[str, tuple[str, ...]] = {
    "the caller's own function, graph, program or observer, which may take as long as it likes": (
        "cli/state_commands.py:_run.run",
        "graph/nodes/error_policy.py:outcomes_of",
        "graph/engine/thread_call.py:call_body",
        "graph/invocation/execution.py:_observed",
        "graph/middleware/isolation.py:FailureIsolation.__call__",
        "graph/middleware/node_retry.py:Retry.__call__",
        "graph/middleware/timing.py:Timing._report",
        "graph/events/event_queue.py:Delivery.around",
        "graph/events/event_queue.py:Delivery.wait_for",
        "graph/events/update_stream.py:updates_of",
        "messages/provider_object.py:opened",
        "runtime/stream/notices.py:_fault",
        "runtime/program/program.py:FunctionProgram.run",
        "runtime/program/tool.py:ToolSpec.make",
        "runtime/program/tool_calls.py:_held_back",
        "runtime/program/tool_calls.py:_side_by_side",
        "runtime/program/tool_function.py:_run_of.run",
    ),
    "a turn under way, which ends by itself, is stopped, or loses its lane": (
        "graph/session/process_locks.py:ProcessLocks.acquire_lock",
        "runtime/queue/sender.py:Sender._advance_to",
        "runtime/queue/sender.py:Sender.begin_with",
        "runtime/queue/dispatcher.py:Dispatcher._before_it",
        "runtime/run_handle.py:RunHandle.result",
        "runtime/run_handle.py:RunHandle.text",
        "runtime/run_handle.py:RunHandle.wait",
        "runtime/queue/sender.py:within_life",
        "runtime/change/pipeline.py:Pipeline.perform",
        "runtime/lifetime.py:Lifetime._close",
        "runtime/portal.py:Portal._end",
        "runtime/queue/worker.py:Worker.work",
    ),
    "a call of the store, whose own waits have limits": (
        "graph/checkpoint/graph_journal.py:GraphJournal._checked",
        "graph/checkpoint/graph_journal.py:GraphJournal._write",
        "graph/checkpoint/graph_journal.py:GraphJournal.save",
        "states/stored_states.py:StoredStates._each",
        "states/stored_states.py:StoredStates._each.one",
        "graph/runtime/runtime_writer.py:RuntimeWriter._leave",
        "cli/session_commands.py:show.work",
        "runtime/lifetime.py:Lifetime.enter",
        "runtime/lifetime.py:Lifetime.leave",
        "runtime/sessions.py:Sessions.get",
        "runtime/stream/chunks.py:Chunks._write",
        "runtime/stream/chunks.py:Chunks.settle",
        "runtime/run/end.py:TurnEnder._check_known",
        "runtime/run/end.py:TurnEnder._end",
        "runtime/run/end.py:TurnEnder.cut_off",
        "runtime/turn/context.py:TurnContext.commit",
        "runtime/turn/context.py:TurnContext.resolve",
        "runtime/calls/call_maker.py:Making._restart",
        "runtime/turn/context.py:TurnContext.open_waits",
        "runtime/turn/context.py:TurnContext.save",
        "writing/run_writer.py:RunWriter.write",
    ),
    "a task that was just cancelled, or a signal to end": (
        "cli/worker_command.py:_work",
        "graph/events/event_queue.py:EventQueues.drain",
    ),
    "work to do, or the end of it: who is idle may be so for ever": (
        "graph/events/event_queue.py:Delivery._work",
        "store/backends/sqlite/writer.py:Writer._serve",
        "store/backends/sqlite/writer.py:Writer._take",
        "store/backends/threads.py:Threads._serve",
    ),
    "nothing: it is free, or has a limit where it is not": (
        "runtime/queue/sender.py:Sender._in_order_of_arrival",
        "store/backends/postgres/pool.py:Pool._room",
    ),
    "an answer that the pool's look cuts off after `command_timeout`": (
        "store/backends/postgres/backend.py:PostgresBackend._apply",
        "store/backends/postgres/backend.py:PostgresBackend._attempt",
        "store/backends/postgres/backend.py:PostgresBackend._gather",
        "store/backends/postgres/connection.py:migrate",
        "store/backends/postgres/connection.py:version_of",
        "store/backends/postgres/pool.py:Pool.fetch",
    ),
    "a thread that reads or opens a file, which has a limit for whatever others keep busy": (
        "store/backends/sqlite/backend.py:SqliteBackend.view",
        "store/backends/sqlite/view.py:SqliteView.read",
        "store/backends/threads.py:in_thread",
    ),
}
"""Whatever a wait is for, and the functions that wait for it."""

NAMED = {place for places in ENDED_BY.values() for place in places}


def bounded(ancestors: list[ast.AST]) -> bool:
    """Tell whether an `asyncio.timeout` stands around it, in the same function."""
    for node in reversed(ancestors):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return False
        if isinstance(node, ast.AsyncWith):
            calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
            if any(ast.unparse(call.func) in {"asyncio.timeout", "asyncio.timeout_at"} for call in calls):
                return True
    return False


def waits(node: ast.AST) -> str | None:
    """Return what a node waits for without a limit of its own, or None."""
    if isinstance(node, ast.AsyncWith):
        for item in node.items:
            if isinstance(item.context_expr, ast.Name | ast.Attribute | ast.Subscript):
                return f"async with {ast.unparse(item.context_expr)}"
        return None
    if isinstance(node, ast.Await):
        return _awaits(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args and not node.keywords:
        # Only threads are joined without a word, and only they stand at a queue without awaiting.
        name, on = node.func.attr, ast.unparse(node.func.value)
        if name == "join" or (name == "get" and on.endswith("queue")):
            return ast.unparse(node)
    return None


def _awaits(value: ast.expr) -> str | None:
    if isinstance(value, ast.Name | ast.Attribute | ast.Subscript):
        return f"await {ast.unparse(value)}"
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return None
    name, on = value.func.attr, ast.unparse(value.func.value)
    if on == "asyncio" and name == "wait":
        limit = [keyword for keyword in value.keywords if keyword.arg == "timeout"]
        return None if limit else "await asyncio.wait"
    if name in OF_ASYNCIO:
        return f"await {on}.{name}"
    if name in WITHOUT_ARGUMENTS and not value.args and not value.keywords:
        return f"await {on}.{name}()"
    if name in OF_CONNECTIONS and (on == "asyncpg" or on.rpartition(".")[2] in {"connection", "_connection"}):
        return f"await {on}.{name}"
    return None


def unbounded(path: Path, source: str) -> Iterator[tuple[str, str]]:
    """Yield the function and the wait of everything that has no limit."""

    def look(node: ast.AST, ancestors: list[ast.AST], names: list[str]) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [*names, node.name]
        found = waits(node)
        # An awaited call is judged by its await.
        inside = isinstance(node, ast.Call) and bool(ancestors) and isinstance(ancestors[-1], ast.Await)
        if found and not inside and not bounded(ancestors):
            yield f"{path.as_posix()}:{'.'.join(names)}", found
        for child in ast.iter_child_nodes(node):
            yield from look(child, [*ancestors, node], names)

    yield from look(ast.parse(source), [], [])


def test_every_wait_has_a_limit_or_a_reason() -> None:
    used: set[str] = set()
    wrong: list[str] = []
    for path in sorted(SOURCE.rglob("*.py")):
        inside = path.relative_to(SOURCE)
        if inside.parts[0] in ASIDE:
            continue
        for place, wait in unbounded(inside, path.read_text()):
            used.add(place)
            if place not in NAMED:
                wrong.append(f"{place}: {wait}")
    assert not wrong, "\n".join(wrong)
    assert used == NAMED, f"no longer there: {sorted(NAMED - used)}"


UNBOUNDED = {
    "await event.wait()": "event.wait",
    "await self._lock.acquire()": "acquire",
    "await queue.get()": "queue.get",
    "await task": "task",
    "await asyncio.wait({task})": "asyncio.wait",
    "await asyncio.gather(*tasks)": "gather",
    "await asyncio.shield(task)": "shield",
    "await asyncio.to_thread(work)": "to_thread",
    "await connection.execute('SELECT 1')": "connection.execute",
    "await asyncpg.connect(url)": "asyncpg.connect",
    "async with self._lock: pass": "self._lock",
    "thread.join()": "thread.join",
    "self._queue.get()": "queue.get",
}


@pytest.mark.parametrize("line", UNBOUNDED)
def test_a_wait_without_a_limit_is_found(line: str) -> None:
    ((place, wait),) = unbounded(Path("a.py"), f"async def f(self):\n    {line}\n")
    assert place == "a.py:f"
    assert UNBOUNDED[line] in wait
    if line.startswith("await"):
        assert not list(
            unbounded(Path("a.py"), f"async def f():\n    async with asyncio.timeout(5):\n        {line}\n")
        )


@pytest.mark.parametrize(
    "line",
    ["await store.runs.get(run_id)", "await store.lanes.acquire(key, owner)", "await asyncio.wait(t, timeout=5)"],
)
def test_a_verb_of_ours_and_a_wait_with_a_limit_are_left_alone(line: str) -> None:
    assert not list(unbounded(Path("a.py"), f"async def f():\n    {line}\n"))
