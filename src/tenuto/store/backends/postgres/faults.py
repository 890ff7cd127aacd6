"""What PostgreSQL and its driver raise, as our errors: one table, by SQLSTATE and by class."""

import re
import ssl

import asyncpg

from tenuto.errors import (
    InvalidInput,
    StoreContended,
    StoredDataCorrupt,
    StoreFull,
    StoreUnavailable,
    StoreUnusable,
    TenutoError,
)
from tenuto.store.backends.signals import GuardMissed, Refused, Translating

GUARD_MISSED = "TN001"
"""What `require` raises, see the first migration."""

_OURS = (TenutoError, GuardMissed, Refused)
_LOST = ("08", "57P", "25006", "25P03", "25P04")
"""SQLSTATEs after which a connection is unusable: it failed, its server goes away, or it leads to a read-only one."""

_BY_STATE: tuple[tuple[str, type[TenutoError], str], ...] = (
    ("08", StoreUnavailable, "repeat the call once the server can be reached"),
    ("0A000", StoreUnusable, "this server cannot do that; use version 16 or later"),
    ("22", InvalidInput, "the value given cannot be stored"),
    ("23", InvalidInput, "the value given breaks a rule of our tables"),
    ("25006", StoreUnusable, "the database is read-only; connect to the primary, or let it be written"),
    ("25P0", StoreUnavailable, "repeat the call"),
    ("26", StoreUnusable, "behind a pooler that shares connections, open the store with statement_cache_size=0"),
    ("28", StoreUnusable, "check the user, the password and the server's pg_hba.conf"),
    ("3D", StoreUnusable, "check the database in the address"),
    ("40", StoreContended, "repeat the call unchanged"),
    ("42501", StoreUnusable, "grant this role the rights on our schema and its tables"),
    ("42", StoreUnusable, "the tables in this schema are not as we made them; restore them, or name another schema"),
    ("53100", StoreFull, "make room on the server's disk and repeat"),
    ("53", StoreUnavailable, "repeat the call once the server has room again"),
    ("54", InvalidInput, "the value given is too long or too complex to be stored; shorten it"),
    ("55006", StoreContended, "repeat the call unchanged"),
    ("55P03", StoreContended, "repeat the call unchanged"),
    ("57014", StoreContended, "it took longer than the server allows, or was cancelled there; repeat it unchanged"),
    ("57", StoreUnavailable, "repeat the call once the server is back"),
    ("58", StoreUnavailable, "look into the server's log, then repeat"),
    ("P0001", StoreUnusable, "a trigger or rule that is not ours refuses this; remove it"),
    ("72", StoreContended, "repeat the call unchanged"),
    ("XX001", StoredDataCorrupt, "the server's files are damaged; restore them from a backup"),
    ("XX002", StoredDataCorrupt, "an index is damaged; rebuild it with REINDEX"),
    ("XX", StoreUnavailable, "look into the server's log, then repeat"),
)

_BY_CLASS: tuple[tuple[type[BaseException], type[TenutoError], str], ...] = (
    (asyncpg.DataError, InvalidInput, "the value given cannot be stored"),
    (asyncpg.exceptions.ClientConfigurationError, StoreUnusable, "check the address and the options"),
    (asyncpg.UnsupportedClientFeatureError, StoreUnusable, "check the options"),
    (asyncpg.UnsupportedServerFeatureError, StoreUnusable, "use version 16 or later"),
    (asyncpg.TargetServerAttributeNotMatched, StoreUnusable, "check target_session_attrs in the address"),
    (asyncpg.OutdatedSchemaCacheError, StoreContended, "the tables were changed meanwhile; repeat the call"),
    (UnicodeDecodeError, StoredDataCorrupt, "stored text is not UTF-8; restore it from a backup"),
    (UnicodeEncodeError, InvalidInput, "the text given is not Unicode"),
    (OverflowError, InvalidInput, "the number given is too big"),
    (ssl.SSLCertVerificationError, StoreUnusable, "check the server's certificate and the ssl options"),
    (PermissionError, StoreUnusable, "check the rights on the server's socket"),
    (TimeoutError, StoreUnavailable, "repeat the call once the server can be reached"),
    (asyncpg.InterfaceError, StoreUnavailable, "repeat the call"),
    (asyncpg.InternalClientError, StoreUnavailable, "repeat the call"),
    (OSError, StoreUnavailable, "repeat the call once the server can be reached"),
    (EOFError, StoreUnavailable, "repeat the call once the server can be reached"),
)

_KEY = re.compile(r"Key \(([^)]*)\)=")


def translated() -> Translating:
    """Return the context in which driver errors become ours."""
    return _TRANSLATED


def translate(error: BaseException) -> BaseException:
    """Return our error for a driver's; what is not the driver's is returned unchanged.

    A broken key means that what was found no longer stands.
    """
    if isinstance(error, _OURS):
        return error
    if isinstance(error, asyncpg.PostgresError):
        return _by_state(error)
    for kind, ours, advice in _BY_CLASS:
        if isinstance(error, kind):
            return ours(f"PostgreSQL: {str(error).strip() or type(error).__name__}; {advice}.")
    return error


_TRANSLATED = Translating(translate)


def leaves_idle(error: BaseException | None) -> bool:
    """Return whether a connection is between two statements after this error, and of use for the next."""
    if isinstance(error, asyncpg.PostgresError):
        return not (error.sqlstate or "").startswith(_LOST)
    return error is None or isinstance(error, _OURS)


def _by_state(error: asyncpg.PostgresError) -> Exception:
    state = error.sqlstate or ""
    if state == GUARD_MISSED:
        return GuardMissed(str(error))
    if state == asyncpg.UniqueViolationError.sqlstate:
        return GuardMissed(str(error), _taken(error))
    if isinstance(error, asyncpg.InvalidCachedStatementError):
        return StoreContended(f"PostgreSQL: {error}; the tables were changed meanwhile; repeat the call.")
    text = f"PostgreSQL: {str(error).strip() or type(error).__name__}"
    for prefix, ours, advice in _BY_STATE:
        if state.startswith(prefix):
            return ours(f"{text}; {advice}.", sqlstate=state)
    return StoreUnusable(f"{text}; look into the server's log.", sqlstate=state)


def _taken(error: asyncpg.PostgresError) -> str:
    """Name the table and the columns of a key that is there already."""
    key = _KEY.search(error.detail or "")
    return f"{error.table_name or 'a table'} ({key[1] if key else error.constraint_name or 'its key'})"
