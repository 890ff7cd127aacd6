"""What a runtime works with: its options, and the parts that are put together from them once for a store."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tenuto.argument import word_of
from tenuto.errors import InvalidInput
from tenuto.model.lane import Owner
from tenuto.quote import quote
from tenuto.runtime.change.actions import Commands
from tenuto.runtime.change.create import SessionCreator
from tenuto.runtime.change.hooks import Controller, as_controller
from tenuto.runtime.change.pipeline import Pipeline
from tenuto.runtime.program.program import Program, Programs
from tenuto.runtime.queue.dispatcher import Dispatcher
from tenuto.runtime.queue.input_handler import InputHandler
from tenuto.runtime.queue.sender import Sender, WhenBusy
from tenuto.runtime.run.begin import TurnFactory
from tenuto.runtime.run.end import TurnEnder
from tenuto.runtime.run.live_turns import LiveTurns
from tenuto.runtime.run.runner import Runner
from tenuto.runtime.stream.notices import Listener, Listeners
from tenuto.runtime.tree.answer import AnswerDesk
from tenuto.runtime.tree.delivery import Deliveries
from tenuto.runtime.tree.in_doubt import InDoubtCalls
from tenuto.runtime.turn.context import DEFAULT_STEPS
from tenuto.runtime.turn.effect_journal import InDoubt
from tenuto.store.store import Store, check_whole_store
from tenuto.writing.lane_claim import DEFAULT_LANE_WAIT, this_owner
from tenuto.writing.lru import DEFAULT_BYTES


@dataclass(slots=True)
class Options:
    """The options of a runtime; see `SessionRuntime`. Iterables are read once, and words checked, when it is made."""

    programs: Iterable[Program] = ()
    hooks: Controller | Iterable[Controller] | None = None
    listeners: Iterable[Listener] = ()
    in_doubt: InDoubt | str = InDoubt.ASK
    owner: Owner | None = None
    steps: int = DEFAULT_STEPS
    actions: Iterable[type[Any]] = ()
    when_busy: WhenBusy | str = WhenBusy.REJECT
    lane_wait: float = DEFAULT_LANE_WAIT
    cache_bytes: int = DEFAULT_BYTES

    def __post_init__(self) -> None:
        self.programs, self.listeners, self.actions = tuple(self.programs), tuple(self.listeners), tuple(self.actions)
        self.hooks = as_controller(self.hooks)
        if type(self.steps) is not int or self.steps < 1:
            raise InvalidInput(f"`steps` must be an integer of 1 or more, got {quote(self.steps)}.")
        self.when_busy = word_of(WhenBusy, self.when_busy, "when_busy")
        self.in_doubt = word_of(InDoubt, self.in_doubt, "in_doubt")


class Machinery:
    """The parts of a runtime on one store."""

    def __init__(self, store: Store, options: Options) -> None:
        self.store, self.options = store, options
        check_whole_store(store, "A runtime's sessions")
        hooks, doubt = as_controller(options.hooks), InDoubt(options.in_doubt)
        self.programs, self.listeners = Programs(options.programs), Listeners(options.listeners)
        self.commands, self.live = Commands(options.actions), LiveTurns(store)
        self.pipeline = Pipeline(store, hooks, self.listeners)
        ender = TurnEnder(store, self.listeners, hooks)
        self.factory = TurnFactory(store, self.programs, self.listeners, hooks, ender, doubt, options.steps)
        self.dispatcher = Dispatcher(
            store,
            self.factory,
            Runner(self.programs, ender, self.live),
            InputHandler(store, self.factory, self.pipeline, self.commands),
            owner=options.owner or this_owner(),
            cache_bytes=options.cache_bytes,
            lane_wait=options.lane_wait,
        )
        self.sender = Sender(store, self.dispatcher, self.live)
        self.answers = AnswerDesk(store, self.listeners)
        self.creator = SessionCreator(store, self.programs, self.pipeline)
        self.deliveries = Deliveries(store, self.live, self.answers, self.creator)
        self.in_doubt = InDoubtCalls(store, self.listeners, self.answers, self.deliveries)
