"""What SQLite and its driver raise, as our errors: one table, by class."""

import errno
import os
from functools import partial

import apsw

from tenuto.errors import (
    InvalidInput,
    StoreClosed,
    StoreContended,
    StoredDataCorrupt,
    StoreFull,
    StoreMisused,
    StoreUnavailable,
    StoreUnusable,
    TenutoError,
)
from tenuto.store.backends.signals import GuardMissed, Translating

_TAKEN = (apsw.SQLITE_CONSTRAINT_UNIQUE, apsw.SQLITE_CONSTRAINT_PRIMARYKEY, apsw.SQLITE_CONSTRAINT_ROWID)
_DAMAGED = (apsw.SQLITE_IOERR_CORRUPTFS, apsw.SQLITE_IOERR_DATA)
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)

_TABLE: tuple[tuple[type[BaseException], type[TenutoError], str], ...] = (
    (apsw.FullError, StoreFull, "The disk is full; make room and repeat."),
    (apsw.BusyError, StoreContended, "Others kept the database busy for too long; repeat."),
    (apsw.LockedError, StoreContended, "The database is locked; repeat."),
    (apsw.ProtocolError, StoreContended, "Others kept the database busy for too long; repeat."),
    (apsw.SchemaChangeError, StoreContended, "The tables were changed meanwhile; repeat."),
    (apsw.NotADBError, StoreUnusable, "The file is not a database; choose another path, or restore it from a backup."),
    (apsw.CorruptError, StoredDataCorrupt, "The database file is damaged; restore it from a backup."),
    (apsw.FormatError, StoredDataCorrupt, "The database file is damaged; restore it from a backup."),
    (UnicodeDecodeError, StoredDataCorrupt, "Stored text is not UTF-8; restore the file from a backup."),
    (apsw.ReadOnlyError, StoreUnusable, "The database file cannot be written; check its permissions."),
    (apsw.CantOpenError, StoreUnusable, "The database file cannot be opened; check the path and its permissions."),
    (apsw.PermissionsError, StoreUnusable, "The database file cannot be opened; check its permissions."),
    (apsw.AuthError, StoreUnusable, "The database file cannot be opened; check its permissions."),
    (apsw.SQLError, StoreUnusable, "The tables are not as we made them; restore the file, or choose another path."),
    (apsw.IOError, StoreUnavailable, "The disk reported an error; check it and repeat."),
    (apsw.NoMemError, StoreUnavailable, "There is no memory left; repeat."),
    (apsw.InterruptError, StoreUnavailable, "The call was interrupted; repeat."),
    (apsw.AbortError, StoreUnavailable, "The call was interrupted; repeat."),
    (apsw.ConstraintError, InvalidInput, "The value given breaks a rule of our tables."),
    (apsw.MismatchError, InvalidInput, "The value given does not have its column's type."),
    (apsw.TooBigError, InvalidInput, "The value given is too big."),
    (apsw.BindingsError, InvalidInput, "The value given cannot be stored."),
    (apsw.ThreadingViolationError, StoreMisused, "A connection was used by two threads at once."),
    (apsw.ForkingViolationError, StoreMisused, "The store was opened before a fork; open one after it."),
    (apsw.ConnectionClosedError, StoreClosed, "The store is closed; open it again."),
    (apsw.CursorClosedError, StoreClosed, "The store is closed; open it again."),
    (apsw.Error, StoreUnusable, "SQLite cannot do that here; check the file, and that SQLite is as it should be."),
)


def translated(path: str) -> Translating:
    """Return the context in which driver errors become ours."""
    return Translating(partial(translate, path=path))


def translate(error: BaseException, path: str) -> BaseException:
    """Return our error for a driver's; what is not the driver's is returned unchanged.

    A key that is there already means that what was found no longer stands.
    """
    extended = getattr(error, "extendedresult", 0)
    if isinstance(error, apsw.ConstraintError) and extended in _TAKEN:
        return GuardMissed(str(error), str(error).rpartition(": ")[2])
    if extended == apsw.SQLITE_CONSTRAINT_TRIGGER:
        return StoreUnusable(f"{path}: A trigger that is not ours refuses this; remove it. ({error})", path=path)
    if isinstance(error, apsw.CantOpenError | apsw.IOError) and _are_descriptors_gone():
        return no_descriptors(path)
    if isinstance(error, apsw.IOError) and extended in _DAMAGED:
        return StoredDataCorrupt(f"{path}: The disk gave back damaged data; restore it. ({error})", path=path)
    for kind, ours, advice in _TABLE:
        if isinstance(error, kind):
            return ours(f"{path}: {advice} ({error})", path=path)
    return error


def shown(error: BaseException, path: str) -> BaseException:
    """Return our error for a driver's where no transaction is run that could read again."""
    ours = translate(error, path)
    return ours.as_error() if isinstance(ours, GuardMissed) else ours


def unstorable(error: Exception, path: str) -> Exception:
    """Return the refusal of a value that cannot be handed to SQLite at all, or what else went wrong with it."""
    if isinstance(error, UnicodeDecodeError):
        return error
    return InvalidInput(f"{path}: A value given cannot be stored: {error}.", path=path)


def no_descriptors(path: str) -> StoreUnavailable:
    """Return the error for a process, or a machine, that can open no more files; that passes."""
    return StoreUnavailable(
        f"{path}: No file descriptors are left, so the file cannot be opened; close some, or raise the limit, and "
        "repeat.",
        path=path,
    )


def lacks_descriptors(error: OSError) -> bool:
    """Return whether the system has refused to open one more file."""
    return error.errno in _NO_DESCRIPTORS


def _are_descriptors_gone() -> bool:
    # SQLite does not pass on why a file could not be opened.
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return lacks_descriptors(error)
    return False
