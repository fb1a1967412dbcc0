"""Write in a transaction of the user, on the user's connection.

A store that can do so makes a `SqlDialect` or a `FileDialect`: how the time is read, how records are loaded
and how commits are judged and written, on a bare connection of a driver. Nothing here begins or ends the
transaction: its writes are true when its owner commits, and were never there when its owner rolls back.
Each use is in a savepoint, so that a refusal leaves the transaction as it was.

    sqlite3.Connection                            SQLite
    asyncpg.Connection, also of a pool            PostgreSQL
    psycopg.Connection, psycopg.AsyncConnection   PostgreSQL
    Session, Connection and their async kinds of SQLAlchemy 2, and connections of Django, above these drivers

Why: decision 0413.
"""

from __future__ import annotations

import inspect
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec

from interlock.errors import InvalidArguments, StoreUnavailable
from interlock.store.records import Commit, Key

T = TypeVar("T")
SAVEPOINT = "interlock_within"
RETRIES = 3
_AGAIN = ("23505", "40001")
"""A row was made by another transaction that has committed meanwhile: look again. (SQLSTATE)"""
_NOT_BEGUN = ("25P01",)
_UNKNOWN_THERE = ("3F000", "42883", "42P01", "42501")
"""No such schema, function or table, or no right to it."""


class Now(msgspec.Struct, frozen=True):
    """Read the clock of the store."""


class LoadRecords(msgspec.Struct, frozen=True):
    """Load records."""

    keys: tuple[Key, ...]


class Write(msgspec.Struct, frozen=True):
    """Judge these commits, and write the possible ones."""

    commits: tuple[Commit, ...]


TransactionStep: TypeAlias = Now | LoadRecords | Write
Steps: TypeAlias = Generator[TransactionStep, Any, T]
"""Steps in a transaction; the answer to each is sent back."""


class Statement(NamedTuple):
    """One statement with numbered arguments, the types of these, and what its rows mean."""

    sql: str
    arguments: Sequence[Any]
    types: Sequence[str]
    read: Callable[[Sequence[Any]], Any]
    by_name: bool = False
    """Whether columns are read by name."""


@runtime_checkable
class SqlDialect(Protocol):
    """A store whose steps are statements."""

    def statement(self, step: TransactionStep) -> Statement:
        """Return the statement of a step."""
        ...

    def notify(self) -> Statement:
        """Return the statement that notifies after the commit."""
        ...


@runtime_checkable
class FileDialect(Protocol):
    """A store in a file, whose steps are carried out on a connection of sqlite3."""

    def check(self, connection: sqlite3.Connection) -> None:
        """Raise unless the connection leads to this file."""
        ...

    def do(self, connection: sqlite3.Connection, step: TransactionStep) -> Any:
        """Carry out a step."""
        ...


@runtime_checkable
class TransactionalStore(Protocol):
    """A store that can write on a connection of the user."""

    def dialect(self) -> SqlDialect | FileDialect:
        """Return how."""
        ...


class StepExecutor(ABC):
    """A connection of a driver. What its methods return is awaited if the driver is async."""

    is_async = False

    @abstractmethod
    def run(self, sql: str) -> Any:
        """Execute a command."""

    @abstractmethod
    def execute(self, step: TransactionStep) -> Any:
        """Carry out a step."""

    @abstractmethod
    def ready(self) -> Any:
        """Make sure that there is a transaction."""

    @abstractmethod
    def wake(self) -> Any:
        """Have others woken when the transaction is committed."""


def run_steps(executor: StepExecutor, steps: Callable[[], Steps[T]]) -> T:
    """Carry out steps in a savepoint, in this thread."""
    if executor.is_async:
        raise InvalidArguments(
            "This connection is async, and can be used only with await.",
            todo="Use interlock.Interlock with it, or a connection that is not async.",
        )
    executor.ready()
    for _ in range(RETRIES):
        try:
            return _in_savepoint(executor, steps)
        except Exception as error:  # noqa: BLE001 - raised below, unless another try may help
            last = error
            if sqlstate_of(error) not in _AGAIN:
                break
    translated = _translated(last)
    raise translated from (None if translated is last else last)


def _in_savepoint(executor: StepExecutor, steps: Callable[[], Steps[T]]) -> T:
    executor.run(f"SAVEPOINT {SAVEPOINT}")
    try:
        made = _driven(executor, steps())
        executor.wake()
    except BaseException:
        executor.run(f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
        raise
    executor.run(f"RELEASE SAVEPOINT {SAVEPOINT}")
    return made


def _driven(executor: StepExecutor, steps: Steps[T]) -> T:
    answer: Any = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as done:
            made: T = done.value
            return made
        answer = executor.execute(step)


async def run_steps_async(executor: StepExecutor, steps: Callable[[], Steps[T]]) -> T:
    """Run the steps with await, for drivers of either kind."""
    await _waited(executor.ready())
    for _ in range(RETRIES):
        try:
            return await _in_savepoint_async(executor, steps)
        except Exception as error:  # noqa: BLE001 - raised below, unless another try may help
            last = error
            if sqlstate_of(error) not in _AGAIN:
                break
    translated = _translated(last)
    raise translated from (None if translated is last else last)


async def _in_savepoint_async(executor: StepExecutor, steps: Callable[[], Steps[T]]) -> T:
    await _waited(executor.run(f"SAVEPOINT {SAVEPOINT}"))
    try:
        made = await _driven_async(executor, steps())
        await _waited(executor.wake())
    except BaseException:
        await _waited(executor.run(f"ROLLBACK TO SAVEPOINT {SAVEPOINT}"))
        raise
    await _waited(executor.run(f"RELEASE SAVEPOINT {SAVEPOINT}"))
    return made


async def _driven_async(executor: StepExecutor, steps: Steps[T]) -> T:
    answer: Any = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as done:
            made: T = done.value
            return made
        answer = await _waited(executor.execute(step))


async def _waited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def sqlstate_of(error: BaseException) -> str:
    """Return the code of an error of PostgreSQL, or "" for other errors.

    Any driver may have raised it.
    """
    inner = getattr(error, "orig", None) or error
    return str(getattr(inner, "sqlstate", None) or getattr(inner, "pgcode", None) or "")


def _translated(error: Exception) -> Exception:
    """Return our error for a known code.

    Any other error of the driver is left to users.
    """
    code = sqlstate_of(error)
    if code in _NOT_BEGUN:
        return not_begun()
    if code in _UNKNOWN_THERE:
        return InvalidArguments(
            f"The connection leads to a database without this store, or may not write to it: {error}",
            todo="Use a connection to the database of the store, with the same user or one with its rights.",
            facts={"sqlstate": code},
        )
    return error


def not_begun() -> InvalidArguments:
    """Return the error of a connection without a transaction."""
    return InvalidArguments(
        "The connection is in no transaction, so a job cannot be committed with it.",
        todo="Begin one: `async with conn.transaction():`, `with conn.transaction():`, or BEGIN.",
    )


class _Sql(StepExecutor):
    """A driver of PostgreSQL."""

    def __init__(self, dialect: SqlDialect, connection: Any) -> None:
        self._dialect = dialect
        self._connection = connection

    def wake(self) -> Any:
        return self._fetch(self._dialect.notify())

    def execute(self, step: TransactionStep) -> Any:
        return self._fetch(self._dialect.statement(step))

    @abstractmethod
    def _fetch(self, statement: Statement) -> Any: ...


class Asyncpg(_Sql):
    """A connection of asyncpg."""

    is_async = True

    async def run(self, sql: str) -> None:
        await self._connection.execute(sql)

    async def ready(self) -> None:
        if not self._connection.is_in_transaction():
            raise not_begun()

    async def _fetch(self, statement: Statement) -> Any:
        return statement.read(await self._connection.fetch(statement.sql, *statement.arguments))


_PLACE = re.compile(r"\$(\d+)")


def _positional(statement: Statement) -> str:
    """Return the statement with typed arguments, as psycopg needs it."""
    types = statement.types
    return _PLACE.sub(lambda found: f"%s::{types[int(found[1]) - 1]}", statement.sql.replace("%", "%%"))


class Psycopg(_Sql):
    """A connection of psycopg 3."""

    def run(self, sql: str) -> None:
        self._connection.execute(sql)

    def ready(self) -> None:
        if self._connection.autocommit and not self._connection.info.transaction_status:
            raise not_begun()

    def _fetch(self, statement: Statement) -> Any:
        with self._connection.cursor(row_factory=_rows(statement)) as cursor:
            cursor.execute(_positional(statement), tuple(statement.arguments))
            return statement.read(cursor.fetchall())


class AsyncPsycopg(_Sql):
    """An async connection of psycopg 3."""

    is_async = True

    async def run(self, sql: str) -> None:
        await self._connection.execute(sql)

    async def ready(self) -> None:
        if self._connection.autocommit and not self._connection.info.transaction_status:
            raise not_begun()

    async def _fetch(self, statement: Statement) -> Any:
        async with self._connection.cursor(row_factory=_rows(statement)) as cursor:
            await cursor.execute(_positional(statement), tuple(statement.arguments))
            return statement.read(await cursor.fetchall())


def _rows(statement: Statement) -> Any:
    from psycopg.rows import dict_row, tuple_row  # noqa: PLC0415 - only who uses psycopg has it

    return dict_row if statement.by_name else tuple_row


class Sqlite(StepExecutor):
    """A connection of sqlite3."""

    def __init__(self, dialect: FileDialect, connection: sqlite3.Connection) -> None:
        self._dialect = dialect
        self._connection = connection

    def ready(self) -> None:
        """Begin a transaction where sqlite3 itself would, before a change."""
        with self._plain_rows():
            self._dialect.check(self._connection)
        if self._connection.in_transaction:
            return
        if self._connection.isolation_level is None:
            raise not_begun()
        try:  # at once for writing: one that reads first may find that it can write no more
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise _busy(error) from error

    def wake(self) -> None:
        """Do nothing: other processes poll the file."""

    def run(self, sql: str) -> None:
        """Execute a command."""
        self._connection.execute(sql)

    def execute(self, step: TransactionStep) -> Any:
        """Carry out a step."""
        try:
            with self._plain_rows():
                return self._dialect.do(self._connection, step)
        except sqlite3.OperationalError as error:
            raise _busy(error) from error

    @contextmanager
    def _plain_rows(self) -> Iterator[None]:
        """Make plain rows and texts, not the types that users have configured."""
        rows, texts = self._connection.row_factory, self._connection.text_factory
        self._connection.row_factory, self._connection.text_factory = None, str
        try:
            yield
        finally:
            self._connection.row_factory, self._connection.text_factory = rows, texts


def _busy(error: sqlite3.OperationalError) -> StoreUnavailable:
    return StoreUnavailable(
        f"The database could not be written to: {error}.",
        todo="Roll back and do the whole transaction again; give sqlite3.connect a longer timeout.",
    )


# From what users have to a driver


async def executor_for_async(store: object, transaction: Any) -> StepExecutor:
    """Return the executor for a transaction in an event loop.

    Async sessions and connections of SQLAlchemy are supported as well.
    """
    if type(transaction).__module__.partition(".")[0] == "sqlalchemy":
        if hasattr(transaction, "sync_session"):
            transaction = await transaction.connection()
        if hasattr(transaction, "sync_connection"):
            await transaction.exec_driver_sql("SELECT 1")  # it begins with the first statement
    return executor_for(store, transaction)


def executor_for(store: object, transaction: Any) -> StepExecutor:
    """Return the executor that writes in this transaction.

    It is one of sqlite3, asyncpg, psycopg, or a layer above them.
    """
    connection = _unwrapped(transaction)
    if not isinstance(store, TransactionalStore):
        raise InvalidArguments(
            "Jobs can be submitted in a transaction only with a store on PostgreSQL or SQLite.",
            todo="Open Interlock on the database of your transaction.",
            facts={"store": type(store).__name__},
        )
    dialect = store.dialect()
    if isinstance(dialect, FileDialect):
        if isinstance(connection, sqlite3.Connection):
            return Sqlite(dialect, connection)
        raise _unsuitable(connection, "a store on SQLite takes a connection of sqlite3")
    driver = type(connection).__module__.partition(".")[0]
    if driver == "asyncpg":
        return Asyncpg(dialect, connection)
    if driver == "psycopg":
        is_async = inspect.iscoroutinefunction(connection.execute)
        return (AsyncPsycopg if is_async else Psycopg)(dialect, connection)
    raise _unsuitable(connection, "a store on PostgreSQL takes a connection of asyncpg or psycopg 3")


def _unwrapped(transaction: Any) -> Any:
    """Return the connection of the driver below SQLAlchemy or Django."""
    layer = type(transaction).__module__.partition(".")[0]
    if layer == "sqlalchemy":
        return _below_sqlalchemy(transaction)
    if layer == "django":
        transaction.ensure_connection()
        return transaction.connection
    return transaction


def _below_sqlalchemy(transaction: Any) -> Any:
    if hasattr(transaction, "sync_session"):
        raise InvalidArguments(
            "An AsyncSession can be used only with await.",
            todo="Use interlock.Interlock with it, or a Session.",
        )
    if hasattr(transaction, "sync_connection"):
        transaction = transaction.sync_connection
    elif hasattr(transaction, "get_bind"):
        transaction = transaction.connection()
    return transaction.connection.driver_connection


def _unsuitable(connection: object, why: str) -> InvalidArguments:
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    return InvalidArguments(
        f"{kind} is not a connection on which jobs can be submitted: {why}.",
        todo="Install psycopg 3 (pip install 'interlock[psycopg]') and use it: postgresql+psycopg:// with "
        "SQLAlchemy, psycopg with Django.",
        facts={"connection": kind},
    )
