"""Kinds of workloads: their interface, and the kinds that are available.

A kind is a class. Its `spec_type` is the type of its configuration; the agent checks a request against it
before READY. An instance lives in a process of its own, from shortly before the start:

    class Greeting(Workload[GreetingSpec]):
        kind = "greeting"
        spec_type = GreetingSpec

        async def prepare(self) -> None:            # before the start: connect, import, warm up
            self.client = await connect(self.spec.host)

        async def run(self, load: Load) -> None:    # from the start on: operations, counted and paced
            await load.drive(self.greet)

        async def greet(self) -> int:               # one operation; returns the number of bytes
            return await self.client.greet()

        async def cleanup(self) -> None:            # at the end, also after a failure
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
"""An operation; returns the number of bytes moved, and raises when it fails."""

BlockingOperation: TypeAlias = Callable[[], int | None]
"""A blocking operation, which is called in a thread."""


class Load(Protocol):
    """The load that a workload has to generate, and its measurements."""

    duration_s: float
    """Time during which operations start."""
    rate: float
    """Operations per second; 0: as many as possible."""
    concurrency: int
    """Maximum number of concurrent operations."""

    async def drive(self, operation: Operation) -> None:
        """Execute the operation at the rate until the load ends; measure each.

        Operations run concurrently.
        """
        ...

    async def drive_in_threads(self, operation: BlockingOperation) -> None:
        """Execute a blocking operation at the rate, in as many threads."""
        ...

    def record(self, took_ns: int, *, size: int = 0, error: str | None = None) -> None:
        """Count one operation of a workload that drives itself; from any thread."""
        ...

    async def until_over(self) -> None:
        """Wait until no more operations should start."""
        ...


class Workload(Generic[SpecT]):
    """Base of a kind of workload; `prepare` and `cleanup` are optional."""

    kind: ClassVar[str]
    spec_type: ClassVar[type[msgspec.Struct]]
    prepare_s: ClassVar[float] = 1.0
    """Time before the start at which its process is started to prepare, unless a request sets it."""

    def __init__(self, spec: SpecT) -> None:
        self.spec = spec

    @classmethod
    def check(cls, spec: SpecT) -> None:
        """Raise `ValueError` for constraints that types cannot express.

        It runs in the agent, so it must be quick.
        """

    async def prepare(self) -> None:
        """Prepare; an exception fails the workload, and an abort kills it."""

    async def run(self, load: Load) -> None:
        """Generate the load, until it ends or there is nothing left to do."""
        raise TypeError(f"{type(self).__name__} does not define run(), so it cannot execute {load!r}")

    async def cleanup(self) -> None:
        """Release all resources.

        It is also called after a failure, and after an abort that comes after the start.
        """


GROUP = "interlock.workloads"
BUILT_IN = {
    "command": "interlock.agent.plugins.command:CommandWorkload",
    "http": "interlock.agent.plugins.http:Http",
    "python": "interlock.agent.plugins.python:Python",
    "sleep": "interlock.agent.plugins.sleep:Sleep",
}

WorkloadType: TypeAlias = type[Workload[Any]]


class KindLocation(msgspec.Struct, frozen=True):
    """A kind, and the location of its class."""

    home: str
    kind: WorkloadType


def offered_kinds(named: Iterable[str] = ()) -> dict[str, KindLocation]:
    """Return all kinds by name.

    A named one overrides one of a package, which overrides a built-in one.
    """
    homes = [*offered_homes(), *named]
    offered: Mapping[str, KindLocation] = {
        kind.kind: KindLocation(home, kind) for home in homes for kind in [load_kind(home)]
    }
    return dict(sorted(offered.items()))


def offered_homes() -> list[str]:
    """Return the locations of built-in and packaged kinds; import nothing."""
    return [*BUILT_IN.values(), *(point.value for point in entry_points(group=GROUP))]


def load_kind(home: str) -> WorkloadType:
    """Return the class at `module:Class`."""
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
            f"{home!r} is not a workload.",
            todo="Make it a class that extends interlock.agent.port.Workload, with kind, spec_type and run.",
            facts={"home": home},
        )
    return found
