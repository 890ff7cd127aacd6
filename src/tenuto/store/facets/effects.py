"""Reading effects."""

from tenuto.argument import check_flag, check_kind
from tenuto.clock import to_micros
from tenuto.model.effect import Effect
from tenuto.model.session import Key, as_key
from tenuto.store.backend import columns_of
from tenuto.store.rules.limits import check_count, check_label, check_limit, check_moment, check_name
from tenuto.store.rules.parts.effect_rules import effect_of
from tenuto.store.rules.plan import Row
from tenuto.store.rules.records import joined
from tenuto.store.rules.rows import EffectRow
from tenuto.store.store_context import StoreContext


class Effects:
    """The journal of calls to the outside. Commits write it (`Commit.effects`)."""

    def __init__(self, store: StoreContext) -> None:
        self._store = store

    async def get(
        self, key: Key, origin_id: str, effect_key: str, *, step: int = 0, namespace: str = ""
    ) -> Effect | None:
        """Return one effect of a session by its origin, namespace, step and key, or None."""
        named = check_name(origin_id, "origin_id"), check_label(namespace, "namespace")
        place = (*named, check_count(step, "step"), check_name(effect_key, "effect_key"))
        rows = await self._store.backend.read("effect_of_session", *columns_of(as_key(key)), *place)
        return _effect(rows[0]) if rows else None

    async def list(
        self,
        key: Key,
        *,
        origin_id: str | None = None,
        in_doubt: bool = False,
        limit: int = 1000,
        after: Effect | None = None,
    ) -> tuple[Effect, ...]:
        """Return a session's effects in the order they were started, perhaps of one origin only.

        `after` continues behind an effect.

        `in_doubt` keeps those that were started and whose runner is gone: their run has ended,
        or another attempt of it runs.
        """
        origin = None if origin_id is None else check_name(origin_id, "origin_id")
        place = (None, "", "", 0, "") if after is None else _place(after)
        params = (origin, int(check_flag(in_doubt, "in_doubt")), *place, check_limit(limit))
        rows = await self._store.backend.read("effects_of_session", *columns_of(as_key(key)), *params)
        return tuple(map(_effect, rows))


def _place(effect: Effect) -> tuple[int, str, str, int, str]:
    """Return an effect's place in the order of a list."""
    check_kind(effect, Effect, "after")
    return (
        to_micros(check_moment(effect.started_at, "after.started_at")),
        check_name(effect.origin_id, "after.origin_id"),
        check_label(effect.namespace, "after.namespace"),
        check_count(effect.step, "after.step"),
        check_name(effect.effect_key, "after.effect_key"),
    )


def _effect(row: Row) -> Effect:
    return effect_of(*joined(EffectRow, row))
