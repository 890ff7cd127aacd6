"""Reading usage."""

from tenuto.argument import check_flag
from tenuto.errors import InvalidInput
from tenuto.model.session import Key, as_key
from tenuto.model.token_usage import UsageReport
from tenuto.store.backend import columns_of
from tenuto.store.rules.limits import check_name, if_given
from tenuto.store.rules.parts.usage_rules import report_of
from tenuto.store.rules.records import key_of
from tenuto.store.rules.rows import SessionRow
from tenuto.store.store_context import StoreContext


class Usage:
    """The ledger of what model calls cost. Commits write it (`Commit.usage`)."""

    def __init__(self, store: StoreContext) -> None:
        self._store = store

    async def report(self, key: Key, *, run_id: str | None = None, cascade: bool = False) -> UsageReport:
        """Return a session's sums, in total, by model and by source; `cascade=True` adds the children's tree.

        With `run_id`, only the calls of that run of the session, also once the run is pruned; a run has no children,
        so both together are refused. What is unknown has used nothing. A sum beyond 2^53 - 1 is `UsageOutOfRange`.
        """
        check_flag(cascade, "cascade")
        if_given(check_name, run_id, "run_id")
        if cascade and run_id is not None:
            raise InvalidInput("A run belongs to one session and has no children: give run_id or cascade.")
        waiting, seen, sums = [as_key(key)], set[object](), []
        async with self._store.backend.view() as view:
            while waiting:
                one = waiting.pop()
                if one in seen:
                    continue
                seen.add(one)
                sums += await view.read("usage_of_session", *columns_of(one), run_id)
                if cascade:
                    ((life,),) = await view.read("life_of", *columns_of(one))
                    children = await view.read("children_of", *columns_of(one), life, 1)
                    waiting += [key_of(SessionRow(*row)) for row in children]
        return report_of(sums, len(seen))
