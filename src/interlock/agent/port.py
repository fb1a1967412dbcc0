"""Kinds of workloads: what one is to an agent, and which there are.

A kind is a class. Its `spec_type` says what a request may ask of it; the agent checks a request against
that before it says READY. An instance lives in a process of its own, from shortly before the start:

    class Greeting(Workload[GreetingSpec]):
        kind = "greeting"
        spec_type = GreetingSpec

        async def prepare(self) -> None:            # before the start: connect, import, warm up
            self.client = await connect(self.spec.host)

        async def run(self, load: Load) -> None:    # from the start on: operations, counted and paced
            await load.drive(self.greet)

        async def greet(self) -> int:               # one operation; what it answers is a number of bytes
            return await self.client.greet()

        async def cleanup(self) -> None:            # in the end, whatever that was
            await self.client.close()

A package offers a kind through an entry point of the group `interlock.workloads`; one that is not in a
package is named when the agent is started (`--workload module:Class`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from interlock.errors import CannotLoad

SpecT = TypeVar("SpecT", bound=msgspec.Struct)

Operation: TypeAlias = Callable[[], Awaitable[int | None]]
"""Done again and again; answers how many bytes it has moved, and raises when it fails."""

BlockingOperation: TypeAlias = Callable[[], int | None]
"""The same for one that blocks: it is called in a thread."""


class Load(Protocol):
    """How much is asked of a workload, and what has been done."""

    duration_s: float
    """For how long operations are begun."""
    rate: float
    """Operations per second; 0 is as many as it can."""
    concurrency: int
    """How many operations there may be side by side."""

    async def drive(self, operation: Operation) -> None:
        """Do it at the rate, side by side, until the load is over; count and measure each."""
        ...

    async def drive_in_threads(self, operation: BlockingOperation) -> None:
        """The same, in as many threads."""
        ...

    def record(self, took_ns: int, *, size: int = 0, error: str | None = None) -> None:
        """Count one operation of a workload that drives itself; from any thread."""
        ...

    async def until_over(self) -> None:
        """Wait until no operation should be begun any more."""
        ...


class Workload(Generic[SpecT]):
    """Base of a kind of workload; `prepare` and `cleanup` may be left out."""

    kind: ClassVar[str]
    spec_type: ClassVar[type[msgspec.Struct]]
    prepare_s: ClassVar[float] = 1.0
    """How long before the start it may begin to prepare, its process included, unless a request says so."""

    def __init__(self, spec: SpecT) -> None:
        self.spec = spec

    @classmethod
    def check(cls, spec: SpecT) -> None:
        """Raise `ValueError` for what types cannot say. Runs in the agent, so it must be quick."""

    async def prepare(self) -> None:
        """Get ready; what fails here fails the workload. An abort meanwhile kills the process."""

    async def run(self, load: Load) -> None:
        """Do the work, until the load is over or there is nothing left to do."""
        raise TypeError(f"{type(self).__name__} has no run, so nothing is done with {load!r}")

    async def cleanup(self) -> None:
        """Let go of everything; also after a failure, and an abort that comes after the start."""


GROUP = "interlock.workloads"
BUILT_IN = {
    "command": "interlock.agent.plugins.command:Command",
    "http": "interlock.agent.plugins.http:Http",
    "python": "interlock.agent.plugins.python:Python",
    "sleep": "interlock.agent.plugins.sleep:Sleep",
}

Kind: TypeAlias = type[Workload[Any]]


class Offered(msgspec.Struct, frozen=True):
    """A kind, and where its process finds it."""

    home: str
    kind: Kind


def offered_kinds(named: Iterable[str] = ()) -> dict[str, Offered]:
    """Every kind by its name; one that is named goes before one of a package, and that before ours."""
    homes = [*offered_homes(), *named]
    offered: Mapping[str, Offered] = {
        kind.kind: Offered(home, kind) for home in homes for kind in [load_kind(home)]
    }
    return dict(sorted(offered.items()))


def offered_homes() -> list[str]:
    """Return where the kinds of Interlock and of installed packages are; nothing is imported."""
    return [*BUILT_IN.values(), *(point.value for point in entry_points(group=GROUP))]


def load_kind(home: str) -> Kind:
    """The class at `module:Class`."""
    module, _, name = home.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise CannotLoad(
            f"There is no workload at {home!r}: {error}.",
            todo="Name it as module:Class, where Python finds the module.",
            facts={"home": home},
        ) from None
    if not (isinstance(found, type) and issubclass(found, Workload) and hasattr(found, "spec_type")):
        raise CannotLoad(
            f"{home!r} is no workload.",
            todo="Make it a class that extends interlock.agent.port.Workload, with kind, spec_type and run.",
            facts={"home": home},
        )
    return found
