"""What a session's program makes of its state: the form in which it reads it, and its check of what others leave."""

from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from tenuto.errors import InvalidInput, ProgramNotRegistered, StateInvalid, StateMigrationError
from tenuto.runtime.program.program import Programs, traits_of
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.session_view import SessionView, changes_between
from tenuto.runtime.session.state_shape import StateShape
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.replica import Replica


def carry_over(programs: Programs, turn: TurnContext) -> None:
    """Bring a turn's session to the version of its program that runs it, with its next commit.

    That is the definition, and the document if the program declares one. Raise `StateMigrationError` if no migration
    leads there, or if what they leave does not fit.
    """
    replica, shape = turn.replica, turn.traits.state
    program = programs.of(replica.definition)
    moves = replica.definition is not None and program.version != replica.definition.version
    if not moves and (shape is None or not _lags(shape, replica)):
        return
    before = replica.value()
    after = _migrated(before, shape) if shape is not None else before
    if moves:
        after = after.with_definition(version=program.version)
    turn.pending.apply(changes_between(before, after), after)


def take_changes(turn: TurnContext, before: SessionView, after: SessionView) -> None:
    """Add what a hook changed to a turn's next commit; raise `StateInvalid` if the program does not accept it."""
    shape = turn.traits.state
    if shape is not None and after.document is not before.document:
        after = _fitting(shape, before, after)
    turn.pending.apply(changes_between(before, after), after)


def as_read(programs: Programs, session: SessionView) -> SessionView:
    """Return a session with its document as its program reads it; as stored, if that is unknown here."""
    shape = _shape_of(programs, session)
    with suppress(StateMigrationError):
        return session if shape is None else _migrated(session, shape)
    return session


def settled(programs: Programs, stored: SessionView, read: SessionView, after: SessionView) -> SessionView:
    """Return what is to be written of a change to a session: as the program that runs it next stores its state.

    A change that leaves the document alone leaves it as it is stored, too. Raise `StateInvalid` if the document does
    not fit. A program that is not registered here checks nothing.
    """
    if _program_of(after.definition) != _program_of(stored.definition):
        return _moved(programs, after, is_whole=True)
    if after.document is read.document and after.schema_version == read.schema_version:
        return replace(after, document=stored.document, schema_version=stored.schema_version)
    shape = _shape_of(programs, after)
    if shape is None:
        return after
    version = programs.of(after.definition).version
    after = _fitting(shape, read, after)
    is_moved = after.definition is not None and after.definition.version != version
    return after.with_definition(version=version) if is_moved else after


def handed_over(programs: Programs, session: SessionView, program: str) -> SessionView:
    """Return a session with another program, named as for `ChangeProgram`, which brings the document over later.

    Raise `InvalidInput` if that program is registered here and cannot read the state.
    """
    name, _, version = program.partition("@")
    after = session.with_definition(name=name, label=name, version=version or programs.version_of(name))
    _moved(programs, after, is_whole=False)
    return after


def created(programs: Programs, session: SessionView) -> SessionView:
    """Return a new session with the whole document of its program's state; raise `StateInvalid` if it does not fit."""
    shape = _shape_of(programs, session)
    if shape is None:
        return session
    shape.check_declared(session.document)
    return replace(session, document=shape.whole(session.document), schema_version=shape.version)


def _shape_of(programs: Programs, session: SessionView) -> StateShape | None:
    try:
        return traits_of(programs.of(session.definition)).state
    except ProgramNotRegistered:
        return None


def _program_of(definition: Definition | None) -> tuple[str, str] | None:
    return None if definition is None else (definition.name, definition.version)


def _moved(programs: Programs, session: SessionView, *, is_whole: bool) -> SessionView:
    """Return a session whose program was changed, with its document as the new one stores it.

    A document that `is_whole` has to fit; to that of a turn that hands over, more may be written.
    """
    try:
        traits = traits_of(programs.of(session.definition))
    except ProgramNotRegistered:
        return session
    try:
        if traits.state is not None:
            moved = _migrated(session, traits.state)
            if is_whole:
                traits.state.read(moved.document)
            return moved
        if traits.reads is not None:
            traits.reads(session.schema_version)
    except (StateInvalid, StateMigrationError) as error:
        name = _program_of(session.definition)
        raise InvalidInput(
            f"{session.key} cannot be moved to {'@'.join(name or ())}, which cannot read its state: {error}",
            key=session.key,
        ) from error
    return session


def _lags(shape: StateShape, replica: Replica) -> bool:
    return replica.schema_version != shape.version or not shape.made_fields <= replica.document.keys()


def _migrated(session: SessionView, shape: StateShape) -> SessionView:
    if session.schema_version != shape.version:
        document = shape.migrate(session.document, session.schema_version)
        return replace(session, document=MappingProxyType(document), schema_version=shape.version)
    with suppress(StateInvalid):  # it fails the turn that reads it
        if more := shape.lacking(session.document):
            return replace(session, document=MappingProxyType({**session.document, **more}))
    return session


def _fitting(shape: StateShape, before: SessionView, after: SessionView) -> SessionView:
    """Return a session with its document in the form the program stores; raise `StateInvalid`."""
    if after.schema_version != shape.version:
        return _migrated(after, shape)
    return replace(after, document=MappingProxyType(shape.settled(before.document, after.document)))
