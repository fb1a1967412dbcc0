"""What the suite needs to know about a store, how it opens one, and which tests apply to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib import import_module
from typing import TypeAlias, TypeVar

import msgspec

from interlock.store.contract import Store

MakeStore: TypeAlias = Callable[[], Store]
"""Makes a store object that is not open yet. It is pickled and sent to other processes."""

Test = TypeVar("Test", bound=Callable[..., object])

_NEEDS = "__store_contract_needs__"


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """Which tests apply; known before there is a store, because tests are collected before they run."""

    shared: bool = False
    """Several hosts may use it, so that its clock is not theirs. The same as the capability."""
    processes: bool = False
    """Several processes of one host may open it."""
    persistent: bool = False
    """What was committed is still there after it was closed and opened again."""
    sql: bool = False
    """Somebody may talk to the database in SQL; `StoreOpener.sql` does."""


class RecordTable(msgspec.Struct, frozen=True):
    """The table of the records for a bare SQL shell; its columns include kind, id, state and version."""

    name: str
    required: tuple[str, ...]
    """What an INSERT has to give beyond kind, id and state."""


class StoreOpener(ABC):
    """Gives the suite store objects. One opener is one database, which is empty at first."""

    @abstractmethod
    async def open(self) -> Store:
        """An open store object on this database, as if from another host; the opener closes it at the end.

        Where a database cannot have two (memory), this is the same object every time.
        """

    @abstractmethod
    async def elsewhere(self) -> StoreOpener:
        """Another database, empty and in its first moment: nobody has opened it yet."""

    def make_store(self) -> MakeStore:
        """For another process. Only asked for where the traits say `processes`."""
        raise LookupError("This opener says `processes`, and has to override make_store.")

    async def sql(self, statement: str) -> Sequence[Sequence[object]]:
        """Run one statement as somebody with a bare shell would; raises when the database refuses it.

        Only asked for where the traits say `sql`.
        """
        raise LookupError(f"This opener says `sql`, and has to override sql: {statement}")

    def record_table(self) -> RecordTable:
        """Where the records are. Only asked for where the traits say `sql`."""
        raise LookupError("This opener says `sql`, and has to override record_table.")

    async def elapse(self, store: Store, seconds: float) -> None:
        """Come back when the store's clock has moved on by so much. Override it for a clock that jumps."""
        until = await store.now() + timedelta(seconds=seconds)
        while await store.now() <= until:
            pass


class DatabaseOpener(StoreOpener):
    """For stores on a server or in a file, where every object is one more client.

    `make` makes store objects on the database; `make_elsewhere` finds a new database and answers the
    same for it.
    """

    def __init__(self, make: MakeStore, make_elsewhere: Callable[[], MakeStore]) -> None:
        self._make = make
        self._make_elsewhere = make_elsewhere
        self._stores: list[Store] = []
        self._others: list[DatabaseOpener] = []

    async def open(self) -> Store:
        """One more client."""
        store = self._make()
        self._stores.append(store)
        await store.open()
        return store

    async def elsewhere(self) -> StoreOpener:
        """The same on a new database."""
        other = type(self)(self._make_elsewhere(), self._make_elsewhere)
        self._others.append(other)
        return other

    def make_store(self) -> MakeStore:
        """What this opener makes its own from."""
        return self._make

    async def close(self) -> None:
        """Close all that was opened."""
        for other in self._others:
            await other.close()
        for store in self._stores:
            await store.close()


def needs(*traits: str) -> Callable[[Test], Test]:
    """This test applies to stores with these traits only."""
    if unknown := set(traits) - set(Traits.__struct_fields__):
        raise ValueError(f"There are no such traits: {', '.join(sorted(unknown))}.")

    def mark(test: Test) -> Test:
        setattr(test, _NEEDS, traits)
        return test

    return mark


def applies(test: object, traits: Traits) -> bool:
    """Whether a store with these traits has to pass this test."""
    return all(getattr(traits, trait) for trait in getattr(test, _NEEDS, ()))


SUBJECTS = (
    "commit",
    "batches",
    "conflict",
    "claim",
    "queries",
    "durability",
    "validation",
    "concurrency",
    "model",
)
"""The modules with the tests, in the order in which somebody who writes a store wants to pass them."""

ContractTest: TypeAlias = Callable[..., object]


def suite_for(traits: Traits, *, subjects: tuple[str, ...] = SUBJECTS) -> dict[str, ContractTest]:
    """The tests that apply, by name; a test module takes them over with `globals().update(...)`."""
    found: dict[str, ContractTest] = {}
    for subject in subjects:
        for name, test in tests_of(subject).items():
            if name in found:
                raise ValueError(f"Two tests are called {name}.")
            if applies(test, traits):
                found[name] = test
    return found


def tests_of(subject: str) -> dict[str, ContractTest]:
    """All tests of one subject."""
    module = import_module(f"{__package__}.{subject}")
    return {
        name: test
        for name, test in vars(module).items()
        if name.startswith("test_") and getattr(test, "__module__", "") == module.__name__
    }
