"""What goes wrong in the driver, in our words: what it is, whether the outcome is unknown, what to do."""

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

Trouble = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
"""What the driver raises. Nothing of it reaches a caller."""


class Undone(Exception):
    """An optimistic write met another writer, and the server has undone it without an error."""


Again = (
    Undone,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.UniqueViolationError,
    asyncpg.CheckViolationError,
)
"""The server has undone everything; with a closer look, or without the others, another try may do."""

NotSent = (asyncpg.InterfaceError, asyncpg.InternalClientError)
"""The driver itself refused, before the server heard of it."""

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
_SPOILERS = (
    *NotSent,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.PostgresConnectionError,
    OSError,
)

_RETRY = "Try again in a moment; see that the server is up and can be reached."
_FULL = "Raise max_connections, lower ?pool=, or put pgbouncer before the server; see `interlock db status`."
_READ = "Read what is there before you repeat it, or repeat it with the same request or expected version."


def translate(error: BaseException, doing: str, target: Target, *, unknown: bool) -> InterlockError:
    """The error of ours that tells what happened while we were `doing` something."""
    if isinstance(error, InterlockError):
        return error
    if isinstance(error, _DENIED):
        return StoreMisconfigured(
            f"{target.shown} does not let us in: {_said(error)}.",
            todo="Correct the user, the password, the database or its permissions.",
            facts={"url": target.shown},
        )
    if isinstance(error, _FOREIGN):
        return ForeignSchema(
            f"The schema {target.schema} of {target.shown} holds tables that are not ours: {_said(error)}.",
            todo="Choose another schema with ?schema=, or another database.",
            facts={"url": target.shown, "schema": target.schema},
        )
    if _is_input(error):
        return InvalidRecord(
            f"PostgreSQL cannot keep this: {_said(error)}.",
            todo="Bodies are JSON, and no text holds the character NUL. Nothing was written.",
        )
    return unavailable(_why(error), doing, target, unknown=unknown, todo=_todo(error))


def unavailable(
    why: str, doing: str, target: Target, *, unknown: bool = False, todo: str = ""
) -> StoreUnavailable:
    """The database could not be reached, or not in time."""
    outcome = "Whether it happened is unknown." if unknown else "Nothing was changed."
    return StoreUnavailable(
        f"{doing} at {target.shown} failed: {why}. {outcome}",
        todo=_READ if unknown else todo or _RETRY,
        facts={"url": target.shown, "outcome_unknown": unknown},
    )


def spoils_the_pool(error: BaseException) -> bool:
    """Whether other connections cannot be trusted either: the server goes, has gone, or only reads."""
    return not _is_input(error) and isinstance(error, _SPOILERS)


def _why(error: BaseException) -> str:
    match error:
        case asyncpg.ReadOnlySQLTransactionError() | asyncpg.TargetServerAttributeNotMatched():
            return "the server is read-only, as a stand-by is"
        case TimeoutError():
            return "it did not answer in time"
        case asyncpg.TooManyConnectionsError():
            return f"the server has no connection left ({_said(error)})"
        case asyncpg.ConnectionDoesNotExistError() | asyncpg.InternalClientError():
            return "the connection broke"  # the driver's own words are about its state, not about the server
        case ConnectionRefusedError() | FileNotFoundError():
            return "nobody answers there"
        case _:
            return _said(error)


def _todo(error: BaseException) -> str:
    return _FULL if isinstance(error, asyncpg.TooManyConnectionsError) else ""


def _is_input(error: BaseException) -> bool:
    """Whether it is about what we were given: class 22 of SQLSTATE, or the driver's own check."""
    if isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError):
        return True
    return isinstance(error, asyncpg.PostgresError) and str(error.sqlstate).startswith("22")


def _said(error: BaseException) -> str:
    return str(error).strip().rstrip(".") or type(error).__name__
