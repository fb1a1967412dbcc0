"""What a workload is to an agent: the port for kinds of your own.

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
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar, Generic, Protocol, TypeAlias, TypeVar

import msgspec

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
