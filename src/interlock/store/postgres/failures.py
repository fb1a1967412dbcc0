"""Errors of the driver as errors of ours: the cause, whether the outcome is unknown, the advice."""

from __future__ import annotations

import asyncpg

from interlock.errors import (
    ForeignSchema,
    InterlockError,
    InvalidRecord,
    StoreMisconfigured,
    StoreUnavailable,
)
from interlock.store.postgres.target import Target

Trouble: tuple[type[Exception], ...] = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
"""Exceptions of the driver. None of them reaches a caller."""


class RolledBack(Exception):
    """An optimistic write met another writer, and the server has rolled it back without an error."""


Again: tuple[type[Exception], ...] = (
    RolledBack,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.UniqueViolationError,
    asyncpg.CheckViolationError,
)
"""Errors after which the server has rolled back, and a retry may succeed."""

NotSent: tuple[type[Exception], ...] = (
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""The driver refused before sending anything."""

_DENIED = (
    asyncpg.InvalidPasswordError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.ClientConfigurationError,
    asyncpg.InvalidSchemaNameError,
)
_FOREIGN = (
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateObjectError,
    asyncpg.DuplicateFunctionError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedFunctionError,
)
_INVALIDATING: tuple[type[Exception], ...] = (
    *NotSent,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.PostgresConnectionError,
    OSError,
)

_RETRY = "Try again in a moment; see that the server is up and can be reached."
_FULL = "Raise max_connections, lower ?pool=, or put pgbouncer before the server; see `interlock db status`."
_READ = "Read the record before you repeat it, or repeat it with the same request id or expected version."


def translate(error: BaseException, doing: str, target: Target, *, unknown: bool) -> InterlockError:
    """Return our error for an error of the driver."""
    if isinstance(error, InterlockError):
        return error
    if isinstance(error, _DENIED):
        return StoreMisconfigured(
            f"{target.shown} refused the connection: {_text(error)}.",
            todo="Correct the user, the password, the database or its permissions.",
            facts={"url": target.shown},
        )
    if isinstance(error, _FOREIGN):
        return ForeignSchema(
            f"The schema {target.schema} of {target.shown} holds tables of another program: {_text(error)}.",
            todo="Choose another schema with ?schema=, or another database.",
            facts={"url": target.shown, "schema": target.schema},
        )
    if _is_input(error):
        return InvalidRecord(
            f"PostgreSQL cannot store this: {_text(error)}.",
            todo="Bodies are JSON, and no text holds the character NUL. Nothing was written.",
        )
    return unavailable(_why(error), doing, target, unknown=unknown, todo=_todo(error))


def unavailable(
    why: str, doing: str, target: Target, *, unknown: bool = False, todo: str = ""
) -> StoreUnavailable:
    """Return the error of an unreachable or slow database."""
    outcome = "Whether it was committed is unknown." if unknown else "Nothing was changed."
    return StoreUnavailable(
        f"{doing} at {target.shown} failed: {why}. {outcome}",
        todo=_READ if unknown else todo or _RETRY,
        facts={"url": target.shown, "outcome_unknown": unknown},
    )


def invalidates_pool(error: BaseException) -> bool:
    """Return whether the other connections cannot be trusted either.

    That is so if the server shuts down, has gone, or is read-only.
    """
    return not _is_input(error) and isinstance(error, _INVALIDATING)


def _why(error: BaseException) -> str:
    match error:
        case asyncpg.ReadOnlySQLTransactionError() | asyncpg.TargetServerAttributeNotMatched():
            return "the server is read-only, as a stand-by is"
        case TimeoutError():
            return "it did not answer in time"
        case asyncpg.TooManyConnectionsError():
            return f"the server has no connection left ({_text(error)})"
        case asyncpg.ConnectionDoesNotExistError() | asyncpg.InternalClientError():
            return "the connection broke"  # the driver's message is about its own state, not about the server
        case ConnectionRefusedError() | FileNotFoundError():
            return "no server answers there"
        case _:
            return _text(error)


def _todo(error: BaseException) -> str:
    return _FULL if isinstance(error, asyncpg.TooManyConnectionsError) else ""


def _is_input(error: BaseException) -> bool:
    """Return whether the error is about the input.

    The SQLSTATE is of class 22, or the driver has refused the input.
    """
    if isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError):
        return True
    return isinstance(error, asyncpg.PostgresError) and str(error.sqlstate).startswith("22")


def _text(error: BaseException) -> str:
    return str(error).strip().rstrip(".") or type(error).__name__
