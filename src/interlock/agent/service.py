"""What a controller can ask of an agent over gRPC. It hears and speaks; the desk holds the workload."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

from grpc import aio

from interlock.agent.desk import Desk
from interlock.agent.messages import stats_of
from interlock.agent.problems import refuse
from interlock.agent.validation import Asked
from interlock.errors import InterlockError
from interlock.wire.fleet import fleet_pb2 as wire
from interlock.wire.fleet.fleet_pb2_grpc import AgentServicer

LONGEST_WAIT_S = 60.0


class AgentService(AgentServicer):
    """The agent as a controller sees it."""

    def __init__(self, desk: Desk, instance: str) -> None:
        self._desk = desk
        self._instance = instance

    async def RunWorkloadWithLiveStats(  # noqa: N802 - the proto's name
        self, request: wire.WorkloadRequest, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[wire.WorkloadStats]:
        """Run one workload and tell how it goes; when the call breaks the workload is stopped."""
        try:
            outbox = self._desk.request(_asked(request))
        except InterlockError as error:
            await refuse(context, error)
        try:
            while (message := await outbox.next()) is not None:
                yield stats_of(request.workload_id, message, self._desk.clocks.wall_ns())
        finally:
            # Also after the last message, when it means nothing any more; the table knows.
            self._desk.disconnected(request.workload_id)

    async def StartWorkload(  # noqa: N802
        self, request: wire.StartRequest, context: aio.ServicerContext[Any, Any]
    ) -> wire.StartAnswer:
        """Tell a READY workload when it starts."""
        try:
            late_ns = self._desk.start(request.workload_id, request.start_at_unix_ns)
        except InterlockError as error:
            await refuse(context, error)
        return wire.StartAnswer(late_ns=late_ns)

    async def AbortWorkload(  # noqa: N802
        self, request: wire.AbortRequest, context: aio.ServicerContext[Any, Any]
    ) -> wire.AbortAnswer:
        """Stop the workload of that id, if there is one to stop."""
        del context
        accepted = self._desk.abort(request.workload_id, request.reason)
        await self._desk.until_left()
        return wire.AbortAnswer(accepted=accepted, state=self._desk.state)

    async def Ping(  # noqa: N802
        self, request: wire.PingRequest, context: aio.ServicerContext[Any, Any]
    ) -> wire.PingAnswer:
        """Say what time it is."""
        received = self._desk.clocks.wall_ns()
        del context
        answer = wire.PingAnswer(sent_unix_ns=request.sent_unix_ns, received_unix_ns=received)
        answer.answered_unix_ns = self._desk.clocks.wall_ns()
        return answer

    async def GetStatus(  # noqa: N802
        self, request: wire.StatusRequest, context: aio.ServicerContext[Any, Any]
    ) -> wire.StatusAnswer:
        """Say where the agent stands, perhaps once it is idle."""
        del context
        if request.wait_idle_s > 0:
            await self._desk.until_idle(min(request.wait_idle_s, LONGEST_WAIT_S))
        desk, record = self._desk, self._desk.record
        return wire.StatusAnswer(
            state=desk.state,
            workload_id=record.workload_id or "",
            final=wire.Status.ValueType(record.final or 0),
            error=record.error or "",
            controller=desk.controller,
            version=version("interlock"),
            instance=self._instance,
            host=socket.gethostname(),
            kinds=list(desk.kinds),
            since_s=desk.since_s,
            sample_every_s=desk.sample_every_s,
        )


def _asked(request: wire.WorkloadRequest) -> Asked:
    return Asked(
        workload_id=request.workload_id,
        kind=request.kind,
        spec=request.spec,
        start_at_unix_ns=request.start_at_unix_ns if request.HasField("start_at_unix_ns") else None,
        duration_s=request.duration_s,
        rate=request.rate,
        concurrency=request.concurrency,
        max_operations=request.max_operations,
        prepare_s=request.prepare_s if request.HasField("prepare_s") else None,
        controller=request.controller[:200],
    )
