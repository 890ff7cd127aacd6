"""What each field of a commit's parts may be, as one table, so that nothing is stored that cannot be read again.

JSON values are checked where they are encoded, and what goes together with what in `shape`.
"""

from dataclasses import fields
from enum import StrEnum
from functools import partial
from typing import Any

from tenuto.argument import check_flag, check_map, refuse, word_of
from tenuto.errors import InvalidInput
from tenuto.ids import check_id
from tenuto.model.commit import (
    Append,
    BeginRun,
    Commit,
    EndRun,
    NewCheckpoint,
    NextRun,
    OpenWait,
    Reset,
    SettleWait,
    TakeRun,
)
from tenuto.model.effect import EffectKind, FinishEffect, SettleEffect, StartEffect
from tenuto.model.input import Boundary, Consume, InputKind, NewInput
from tenuto.model.lane import HostProof, Lane, Owner, Rearm
from tenuto.model.outgoing_item import NewOutgoing
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import Kind, LogEnd, SessionFilter, SessionHead, SessionKey, SessionRecord, SessionStatus
from tenuto.model.token_usage import NewUsage
from tenuto.model.wait import WaitStatus
from tenuto.store.rules.limits import (
    MAX_NAME_BYTES,
    Check,
    check_count,
    check_delay,
    check_moment,
    check_name,
    check_text,
    check_timeout,
    check_ttl,
    within,
)

_SUFFICES: dict[Check, type] = {check_flag: bool, check_map: dict}
"""Checks that take every value of a class; one of that very class does not go through them, since most come so."""


class Shape:
    """The fields of a dataclass and the check of each; a field at its default, such as None, is not looked at."""

    def __init__(self, kind: type, /, **checks: Check) -> None:
        self.kind = kind
        defaults = {each.name: each.default for each in fields(kind)}
        self._rows = tuple((name, defaults[name], _SUFFICES.get(check), check) for name, check in checks.items())

    def __call__(self, value: Any, what: str = "") -> None:
        """Refuse a value of another class, and one with a field that cannot be kept; `what` goes before its name."""
        if type(value) is not self.kind:
            refuse(what or f"the {self.kind.__name__.lower()}", f"a {self.kind.__name__}", value)
        try:
            for name, default, suffices, check in self._rows:
                if (given := getattr(value, name)) is not default and type(given) is not suffices:
                    check(given, name)
        except InvalidInput:
            if what:  # only a refusal needs the whole name of the field, so it is put together only then
                check(given, f"{what}.{name}")
            raise


def _maybe(check: Check) -> Check:
    return lambda value, what: None if value is None else check(value, what)


def _word(words: type[StrEnum], *but: StrEnum) -> Check:
    wanted = ", ".join(word for word in words if word not in but)

    def check(value: Any, what: str) -> None:
        if word_of(words, value, what) in but:
            refuse(what, f"one of {wanted}", value)

    if not but:
        _SUFFICES[check] = words
    return check


def _each(check: Check) -> Check:
    def checked(value: Any, what: str) -> None:
        if type(value) is not tuple and type(value) is not list:
            refuse(what, "a tuple", value)
        for index, item in enumerate(value):
            check(item, f"{what}[{index}]")

    return checked


def _a_list(value: Any, what: str) -> None:
    if type(value) is not tuple and type(value) is not list:
        refuse(what, "a tuple", value)


_SUFFICES[_a_list] = tuple


def _all(check: Check) -> Check:
    def checked(value: Any, what: str) -> None:
        if not isinstance(value, frozenset | set):
            refuse(what, "a set", value)
        for item in value:
            check(item, f"{what} item")

    return checked


def _one_of(*shapes: Shape) -> Check:
    known = {shape.kind: shape for shape in shapes}
    wanted = " or ".join(kind.__name__ for kind in known)

    def checked(value: Any, what: str) -> None:
        shape = known.get(type(value))
        if shape is None:
            refuse(what, f"a {wanted}", value)
        shape(value, what)

    return checked


def _by_name(check: Check) -> Check:
    def checked(value: Any, what: str) -> None:
        for name, item in (value if type(value) is dict else check_map(value, what)).items():
            check_name(name, f"a name in {what}")
            check(item, name)

    return checked


def _is_a(kind: type) -> Check:
    def checked(value: Any, what: str) -> None:
        if not isinstance(value, kind):
            refuse(what, f"a {kind.__name__}", value)

    _SUFFICES[checked] = kind
    return checked


def check_end(end: Any, name: str) -> None:
    """Refuse what is not a point in a log, or has numbers out of range."""
    if type(end) is not LogEnd:
        refuse(f"the end of {name}", "a LogEnd", end)
    for part, what in zip(end, LogEnd._fields, strict=True):
        check_count(part, f"{name}.{what}")


_ENDS = _by_name(check_end)
_KEY = _is_a(SessionKey)
_short = partial(check_text, most=MAX_NAME_BYTES)


_BEGIN = Shape(
    BeginRun,
    run_id=check_name,
    invocation_id=check_id,
    origin_id=check_id,
    correlation_id=check_name,
    worker=_short,
    fresh=check_flag,
    base_version=check_count,
    base_ends=_ENDS,
    ends=_ENDS,
    ttl=check_ttl,
)
_TAKE = Shape(
    TakeRun,
    run_id=check_name,
    attempt=check_count,
    worker=_short,
    gone=_short,
    base_version=check_count,
    base_ends=_ENDS,
    ends=_ENDS,
    ttl=check_ttl,
)
RUN_REF = Shape(RunRef, run_id=check_name, attempt=check_count)
_EFFECT: dict[str, Check] = {"key": check_name, "namespace": _short, "step": check_count}
INPUT = Shape(
    NewInput,
    kind=_word(InputKind),
    key=check_name,
    boundary=_word(Boundary),
    run_id=check_name,
    due_at=check_moment,
    delay=check_delay,
    log=check_name,
    item=check_count,
    input_id=check_name,
    spent=check_flag,
)

USAGE = Shape(
    NewUsage,
    model=check_name,
    source=_short,
    input=check_count,
    output=check_count,
    cache_read=check_count,
    cache_write=check_count,
    reasoning=check_count,
)

OWNER = Shape(
    Owner,
    owner_id=check_name,
    incarnation=check_name,
    host=Shape(
        HostProof,
        machine_id=_short,
        boot_id=_short,
        pid_namespace=_short,
        pid=check_count,
        started=check_count,
    ),
)

LANE = Shape(Lane, key=_KEY, life=check_count, generation=check_count, nonce=check_name)

RECORD = Shape(
    SessionRecord,
    session_id=check_id,
    state=check_map,
    schema_version=_short,
    logs=_all(check_name),
    head=_is_a(SessionHead),
)

FILTER = Shape(
    SessionFilter,
    tenant=within,
    kind=_maybe(_word(Kind)),
    updated_after=check_moment,
    created_after=check_moment,
    schema_version=_short,
    status=_word(SessionStatus),
    agent=_short,
    user_id=_short,
    tag=_short,
    parent=_short,
)

COMMIT = Shape(
    Commit,
    key=_KEY,
    operation_id=check_name,
    life=check_count,
    heard=check_name,
    generation=check_count,
    run=_one_of(RUN_REF, _BEGIN, _TAKE),
    statuses=_all(_word(SessionStatus)),
    expected_version=check_count,
    expected_commit=check_count,
    expected_events=check_count,
    save=check_flag,
    carries=check_flag,
    document=check_map,
    removed=_all(check_name),
    logs=_by_name(
        _one_of(
            Shape(Append, items=_a_list, base=check_end),
            Shape(Reset, items=_a_list, keep=check_end),
        )
    ),
    schema_version=_short,
    status=_word(SessionStatus, SessionStatus.DELETED),
    profile=check_map,
    count_resume=check_flag,
    steps=check_count,
    end=Shape(EndRun, status=_word(RunStatus, RunStatus.RUNNING), partial=check_flag),
    checkpoint=Shape(NewCheckpoint, step=check_count, document=check_map, schema_version=_short, before=check_flag),
    open_waits=_each(
        Shape(
            OpenWait,
            kind=check_name,
            signal_id=_short,
            deadline=check_moment,
            timeout=check_timeout,
            metadata=check_map,
        )
    ),
    settle_waits=_each(
        Shape(SettleWait, wait_id=check_name, status=_word(WaitStatus, WaitStatus.OPEN), late=check_flag)
    ),
    events=_a_list,
    inputs=_each(INPUT),
    consume=_each(Shape(Consume, input_id=check_name, log=check_name, item=check_count, spent=check_flag)),
    rolls_back=check_name,
    sees_stop=check_flag,
    effects=_each(
        _one_of(
            Shape(StartEffect, **_EFFECT, kind=_word(EffectKind), idempotent=check_flag, call_id=check_name),
            Shape(FinishEffect, **_EFFECT),
            Shape(SettleEffect, **_EFFECT, origin_id=check_name),
        )
    ),
    usage=_each(USAGE),
    outgoing=_each(Shape(NewOutgoing, kind=check_name, target=_KEY, due_at=check_moment, delay=check_delay)),
    next_run=Shape(NextRun, begin=_BEGIN, input_id=check_name, log=check_name, events=_a_list),
    rearm=Shape(Rearm, nonce=check_name, ttl=check_ttl),
    disarm=check_flag,
)
"""A commit, and all its parts."""
