"""A controller for tests: it speaks gRPC to an agent and keeps what it hears."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from grpc import aio
from tests.waiting import PATIENCE_S, until

from interlock.wire.fleet import fleet_pb2 as wire
from interlock.wire.fleet.fleet_pb2_grpc import AgentStub

if TYPE_CHECKING:
    from interlock.wire.fleet.fleet_pb2_grpc import AgentAsyncStub

Stats: TypeAlias = wire.WorkloadStats


def now_ns() -> int:
    """Return the present instant, as agents and controllers send it."""
    return time.time_ns()


class Call:
    """One workload: the messages that came, and how to wait for more."""

    def __init__(self, call: aio.UnaryStreamCall[wire.WorkloadRequest, Stats]) -> None:
        self.call = call
        self.heard: list[Stats] = []
        self.error: aio.AioRpcError | None = None
        self._changed = asyncio.Condition()
        self._listening = asyncio.create_task(self._listen())

    async def until(self, holds: Callable[[Stats], object]) -> Stats:
        """The first message of which that holds."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            while True:
                found = next((one for one in self.heard if holds(one)), None)
                if found is not None:
                    return found
                if self._listening.done():
                    raise AssertionError(f"it never came: {self.heard[-2:]} {self.error}")
                await self._changed.wait()

    async def until_status(self, status: wire.Status.ValueType) -> Stats:
        return await self.until(lambda one: one.status == status)

    async def until_started(self) -> Stats:
        return await self.until(lambda one: one.started_at_unix_ns)

    async def last(self) -> Stats:
        """The final message."""
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait((self._listening,))
        assert self.error is None, self.error
        assert [one.completed for one in self.heard].count(True) == 1
        assert [one.sequence for one in self.heard] == list(range(1, len(self.heard) + 1))
        return self.heard[-1]

    async def refused(self) -> aio.AioRpcError:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait((self._listening,))
        assert self.error is not None
        return self.error

    def hang_up(self) -> None:
        self.call.cancel()

    async def _listen(self) -> None:
        try:
            async for stats in self.call:
                async with self._changed:
                    self.heard.append(stats)
                    self._changed.notify_all()
        except aio.AioRpcError as error:
            self.error = error
        finally:
            async with self._changed:
                self._changed.notify_all()


class Controller:
    """Speaks to one agent."""

    def __init__(self, channel: aio.Channel, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        self.channel = channel
        self.stub: AgentAsyncStub = AgentStub(channel)
        self.metadata = metadata
        self._calls: list[Call] = []

    def run(self, workload_id: str, kind: str, spec: Mapping[str, Any], **more: Any) -> Call:
        request = wire.WorkloadRequest(
            workload_id=workload_id, kind=kind, spec=json.dumps(spec).encode(), controller="a test", **more
        )
        call = Call(self.stub.RunWorkloadWithLiveStats(request, metadata=self.metadata))
        self._calls.append(call)
        return call

    async def started(self, workload_id: str, kind: str, spec: Mapping[str, Any], **more: Any) -> Call:
        """One whose operations have begun."""
        call = self.run(workload_id, kind, spec, start_at_unix_ns=now_ns(), **more)
        await call.until_started()
        return call

    async def start(self, workload_id: str, at_unix_ns: int | None = None) -> wire.StartAnswer:
        at = now_ns() if at_unix_ns is None else at_unix_ns
        return await self.stub.StartWorkload(
            wire.StartRequest(workload_id=workload_id, start_at_unix_ns=at), metadata=self.metadata
        )

    async def abort(self, workload_id: str) -> wire.AbortAnswer:
        request = wire.AbortRequest(workload_id=workload_id, reason="a test")
        return await self.stub.AbortWorkload(request, metadata=self.metadata)

    async def status(self, wait_idle_s: float = 0.0) -> wire.StatusAnswer:
        return await self.stub.GetStatus(
            wire.StatusRequest(wait_idle_s=wait_idle_s),
            metadata=self.metadata,
            timeout=PATIENCE_S + wait_idle_s,
        )

    async def until_state(self, state: str) -> wire.StatusAnswer:
        answer = await self.status()

        async def there() -> bool:
            nonlocal answer
            answer = await self.status()
            return answer.state == state

        await until(there, f"the agent is {state}", story=lambda: str(answer))
        return answer

    def hang_up(self) -> None:
        for call in self._calls:
            call.hang_up()

    async def close(self) -> None:
        self.hang_up()
        with suppress(asyncio.CancelledError):
            await self.channel.close()
