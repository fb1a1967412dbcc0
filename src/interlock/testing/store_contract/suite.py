"""The traits of a store, how to open it, and the selection of the tests that apply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib import import_module
from typing import TypeAlias, TypeVar

import msgspec

from interlock.errors import CannotLoad
from interlock.store.contract import Store

MakeStore: TypeAlias = Callable[[], Store]
"""Creates a store object that is not open yet. It is pickled and sent to other processes."""

Test = TypeVar("Test", bound=Callable[..., object])

_NEEDS = "__store_contract_needs__"


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """Traits that select the tests; known before there is a store, because tests are collected first."""

    shared: bool = False
    """Several hosts may use the store, so that its clock is not theirs. Equals the capability."""
    processes: bool = False
    """Several processes of one host may open the store."""
    persistent: bool = False
    """Committed data survive closing and reopening."""
    sql: bool = False
    """The database can be queried in SQL, by `StoreOpener.sql`."""


class RecordTable(msgspec.Struct, frozen=True):
    """The table of the records for raw SQL; its columns include kind, id, state and version."""

    name: str
    required: tuple[str, ...]
    """Columns that an INSERT has to set besides kind, id and state."""


class StoreOpener(ABC):
    """Opens store objects for the suite. One opener is one database, which is empty at first."""

    @abstractmethod
    async def open(self) -> Store:
        """Return an open store object on this database.

        It is as if from another host. The opener closes it at the end. Where a database cannot have two
        (memory), this is the same object every time.
        """

    @abstractmethod
    async def elsewhere(self) -> StoreOpener:
        """Return an opener of another, empty database that was never opened."""

    def make_store(self) -> MakeStore:
        """Return a factory for another process.

        Called only with the trait `processes`.
        """
        raise LookupError("This opener declares `processes`, and has to override make_store.")

    async def sql(self, statement: str) -> Sequence[Sequence[object]]:
        """Run one statement with a plain SQL client.

        Raise when the database refuses it. Called only with the trait `sql`.
        """
        raise LookupError(f"This opener declares `sql`, and has to override sql: {statement}")

    def record_table(self) -> RecordTable:
        """Return the table of the records. Called only with the trait `sql`."""
        raise LookupError("This opener declares `sql`, and has to override record_table.")

    async def elapse(self, store: Store, seconds: float) -> None:
        """Return when the store's clock has advanced.

        Override it for a clock that jumps.
        """
        until = await store.now() + timedelta(seconds=seconds)
        while await store.now() <= until:
            pass


class DatabaseOpener(StoreOpener):
    """Opens stores on a server or in a file, where every object is another client.

    `make` creates store objects on the database; `make_elsewhere` creates a new database and returns the
    same for it.
    """

    def __init__(self, make: MakeStore, make_elsewhere: Callable[[], MakeStore]) -> None:
        self._make = make
        self._make_elsewhere = make_elsewhere
        self._stores: list[Store] = []
        self._others: list[DatabaseOpener] = []

    async def open(self) -> Store:
        """Open another client."""
        store = self._make()
        self._stores.append(store)
        await store.open()
        return store

    async def elsewhere(self) -> StoreOpener:
        """Return an opener of a new database."""
        other = type(self)(self._make_elsewhere(), self._make_elsewhere)
        self._others.append(other)
        return other

    def make_store(self) -> MakeStore:
        """Return the factory of this opener."""
        return self._make

    async def close(self) -> None:
        """Close all stores that were opened."""
        for other in self._others:
            await other.close()
        for store in self._stores:
            await store.close()


def needs(*traits: str) -> Callable[[Test], Test]:
    """Limit a test to stores with these traits."""
    if unknown := set(traits) - set(Traits.__struct_fields__):
        raise ValueError(f"There are no such traits: {', '.join(sorted(unknown))}.")

    def mark(test: Test) -> Test:
        setattr(test, _NEEDS, traits)
        return test

    return mark


def applies(test: object, traits: Traits) -> bool:
    """Return whether a store with these traits has to pass this test."""
    return all(getattr(traits, trait) for trait in getattr(test, _NEEDS, ()))


SUBJECTS = (
    "commit",
    "batches",
    "foresight",
    "conflict",
    "claim",
    "queries",
    "durability",
    "plain_records",
    "queue_retention",
    "new_kinds",
    "validation",
    "concurrency",
    "model",
)
"""The modules of tests, in the order in which the author of a store wants to pass them."""

ContractTest: TypeAlias = Callable[..., object]


def suite_for(traits: Traits, *, subjects: tuple[str, ...] = SUBJECTS) -> dict[str, ContractTest]:
    """Return the tests that apply, by name.

    A test module passes them to `globals().update(...)`.
    """
    found: dict[str, ContractTest] = {}
    for subject in subjects:
        for name, test in tests_of(subject).items():
            if name in found:
                raise ValueError(f"Two tests are called {name}.")
            if applies(test, traits):
                found[name] = test
    return found


def tests_of(subject: str) -> dict[str, ContractTest]:
    """Return all tests of a subject.

    Raise if a library that they need is not installed.
    """
    try:
        module = import_module(f"{__package__}.{subject}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("interlock"):
            raise
        raise CannotLoad(
            f"The contract of a store needs libraries that are not installed: {error.name} is missing.",
            todo="Install them: pip install 'interlock[testing]'",
            facts={"missing": error.name},
        ) from None
    return {
        name: test
        for name, test in vars(module).items()
        if name.startswith("test_") and getattr(test, "__module__", "") == module.__name__
    }
