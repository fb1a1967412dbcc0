"""gRPC calls and streams between processes, carried by the network of the world."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NoReturn, Protocol

import grpc
import msgspec
from grpc import aio

from interlock.errors import StoreUnavailable
from interlock_verification.worlds import faults
from interlock_verification.worlds.claims.episodes import REQUEST, UnexpectedError
from interlock_verification.worlds.faults import CallFault
from interlock_verification.worlds.judge_fleet import ConnectionFaults
from interlock_verification.worlds.network import ActorProcess, NetworkCall, ReceiveAnswer

REPEATED = ("StartWorkload", "AbortWorkload")
"""Requests that a proxy may repeat; repeating a status request is irrelevant."""


PROMPT_S = 0.1
"""Calls that take longer met a fault."""


class RpcObserver(Protocol):
    """An observer of a server, without influence on it."""

    def request_received(self, method: str, request: Any) -> None:
        """Observe a request before it is answered."""
        ...

    def answer_sent(self, method: str, request: Any, message: Any) -> None:
        """Observe a response before it is sent."""
        ...

    def refuses(self, method: str, request: Any) -> None:
        """Observe a refused request."""
        ...

    def alone(self, request: Any) -> None:
        """Observe that the receiver has disconnected."""
        ...


class RefusedCall(Exception):
    """A service has ended a call with a status that is not OK."""

    def __init__(self, error: aio.AioRpcError) -> None:
        super().__init__(error.details())
        self.error = error


class CallContext:
    """The context of a call, for refusals."""

    async def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: Sequence[tuple[str, str | bytes]] = (),
    ) -> NoReturn:
        """End the call."""
        raise RefusedCall(rpc_error(code, details, trailing_metadata))


class WireServer:
    """The server of one process: its methods, and how a call is answered."""

    def __init__(self, process: ActorProcess, observer: RpcObserver) -> None:
        self.process = process
        self.observer = observer
        self._methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Ignore generic handlers: the registered ones are used."""

    def add_registered_method_handlers(
        self, service: str, methods: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        """Register the methods by path."""
        self._methods |= {f"/{service}/{name}": method for name, method in methods.items()}

    def method(self, path: str) -> Any:
        """Return the handler of a path."""
        return self._methods[path]

    def answer(self, path: str, payload: bytes, done: ReceiveAnswer) -> None:
        """Answer one call, in the process of the server."""
        self.process.loop.create_task(self._answer(path, payload, done), name=path)

    async def _answer(self, path: str, payload: bytes, done: ReceiveAnswer) -> None:
        method, name = self.method(path), named(path)
        request = method.request_deserializer(payload)
        self.observer.request_received(name, request)
        try:
            answer = await method.unary_unary(request, CallContext())
        except RefusedCall as refused:
            self.observer.refuses(name, request)
            done(None, refused.error)
        except Exception as crash:  # noqa: BLE001 - any exception is a finding
            self.crashed(name, crash)
        else:
            self.observer.answer_sent(name, request, answer)
            done(method.response_serializer(answer), None)

    def crashed(self, name: str, crash: Exception) -> None:
        """Report a crash of a service as a broken claim.

        It is ignored if its process has ended.
        """
        if self.process.alive:
            reason = f"{self.process.loop.name} {name}: {crash!r}"
            self.process.network.watcher.check(UnexpectedError(REQUEST, reason))


def server_at(process: ActorProcess | None) -> WireServer | None:
    """Return the server of a live, started process."""
    if process is None or not process.alive or process.role is None:
        return None
    found: WireServer = process.role.server
    return found


class UnaryCalls:
    """Calls with one answer, from a process to a server."""

    def __init__(self, caller: ActorProcess, to: str, connection_faults: ConnectionFaults) -> None:
        self._caller = caller
        self._to = to
        self._connection_faults = connection_faults

    def method(
        self, path: str, write: Callable[[Any], bytes], read: Callable[[bytes], Any]
    ) -> Callable[..., Any]:
        """Return the callable of a stub."""

        async def ask(request: Any, *, timeout: float, metadata: object = ()) -> Any:  # noqa: ARG001
            return read(await self._asked(path, write(request), timeout))

        return ask

    async def _asked(self, path: str, payload: bytes, within_s: float) -> bytes:
        def arrive(done: ReceiveAnswer) -> None:
            server = server_at(self._caller.network.nodes[self._to].process)
            if server is None:
                done(None, rpc_error(grpc.StatusCode.UNAVAILABLE, "connection refused"))
            else:
                server.answer(path, payload, done)

        schedule, repeats = self._caller.network.schedule, named(path) in REPEATED
        sent_at = schedule.now
        try:
            call = NetworkCall(self._caller, self._to, arrive, within_s, repeats=repeats, resends=True)
            answer: bytes = await call.answer()
        except StoreUnavailable as silence:
            raise rpc_error(grpc.StatusCode.UNAVAILABLE, silence.sentence) from None
        finally:
            if schedule.now > sent_at + PROMPT_S:
                self._connection_faults.note(self._caller.name, self._to, schedule.now)
        return answer


def named(path: str) -> str:
    """Return the method of a path."""
    return path.rpartition("/")[2]


def rpc_error(
    code: grpc.StatusCode, details: str, trailing: Sequence[tuple[str, str | bytes]] = ()
) -> aio.AioRpcError:
    """Return the error of a call."""
    return aio.AioRpcError(code, aio.Metadata(), aio.Metadata(*trailing), details)


async def until(event: asyncio.Event) -> None:
    """Wait for an event, and clear it."""
    await event.wait()
    event.clear()


PING_S = 5.0
"""Interval and timeout of pings on a silent connection."""
WITHOUT_A_WORD = 0.3
"""Share of deaths without a closed connection: a power cut, not only a dead process."""


class StreamEnd(msgspec.Struct, frozen=True):
    """The end of a stream, perhaps with an error."""

    error: aio.AioRpcError | None = None


class Side:
    """One of the two ends of a stream, as the other sees it."""

    def __init__(self, process: ActorProcess) -> None:
        self.process = process
        self.gone = False
        """Whether it has left."""
        self.missed = 0
        """Number of unanswered pings."""

    @property
    def answers(self) -> bool:
        """Whether it would answer a ping."""
        return self.process.alive and not self.process.frozen


class WireChannel:
    """The channel of a controller to one agent, for stubs."""

    def __init__(self, process: ActorProcess, to: str, connection_faults: ConnectionFaults) -> None:
        self._process = process
        self._to = to
        self._connection_faults = connection_faults
        self._asking = UnaryCalls(process, to, connection_faults)
        self._streams: list[CallStream] = []

    def unary_unary(
        self,
        path: str,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
        **_: object,
    ) -> Callable[..., Any]:
        """Return a method with one response."""
        return self._asking.method(path, request_serializer, response_deserializer)

    def unary_stream(
        self,
        path: str,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
        **_: object,
    ) -> Callable[..., CallStream]:
        """Return a method with a stream of responses."""

        def begin(request: Any, *, metadata: object = ()) -> CallStream:  # noqa: ARG001
            stream = CallStream(self._process, self._to, self._connection_faults, response_deserializer)
            stream.open(path, request_serializer(request))
            self._streams.append(stream)
            return stream

        return begin

    async def close(self, grace: float | None = None) -> None:  # noqa: ARG002
        """End all open streams."""
        for stream in self._streams:
            stream.cancel()


class CallStream:
    """One call with a stream of responses, from both sides."""

    def __init__(
        self, client: ActorProcess, to: str, connection_faults: ConnectionFaults, read: Callable[[bytes], Any]
    ) -> None:
        self._network = client.network
        self._to = to
        self._connection_faults = connection_faults
        self._read = read
        self._client = Side(client)
        self._server: Side | None = None
        self._serving: ServedCall | None = None
        self._under_way: deque[bytes | StreamEnd] = deque()
        self._stuck = 0
        """Number of delayed messages."""
        self._due = 0.0
        self._snapped = False
        self._inbox: deque[bytes | StreamEnd] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        client.at_end.append(self._client_dies)

    def open(self, path: str, payload: bytes) -> None:
        """Send the request."""
        schedule, fault = (
            self._network.schedule,
            self._fault(self._client.process.name, self._to, repeats=True),
        )
        what = fault.what if fault is not None else ""
        if fault is not None and what == faults.REQUEST_LOST:
            schedule.call_in(fault.seconds, self._break_client, "The connection broke.")
            return
        late_s = fault.seconds if fault is not None and what == faults.LATE else self._network.trip_s()
        schedule.call_in(late_s, self._arrive, path, payload)
        if fault is not None and what == faults.TWICE:
            schedule.call_in(fault.seconds, self._arrive_again, path, payload)

    # Client side

    def __aiter__(self) -> CallStream:
        return self

    async def __anext__(self) -> Any:
        """Return the next message, as soon as there is one."""
        while not self._inbox:
            await until(self._news)
        message = self._inbox[0]
        if not isinstance(message, StreamEnd):
            self._inbox.popleft()
            return self._read(message)
        if message.error is not None:
            raise message.error
        raise StopAsyncIteration

    def cancel(self) -> None:
        """Cancel the stream; the server is notified if it is reachable."""
        if not self._client.gone:
            self._client_goes()
            if self._up:
                self._network.schedule.call_in(self._network.trip_s(), self._break_server)

    def _client_dies(self) -> None:
        if not self._client.gone:
            self._client_goes()
            if self._up and self._network.random.random() >= WITHOUT_A_WORD:
                self._network.schedule.call_in(self._network.trip_s(), self._break_server)

    def _client_goes(self) -> None:
        self._client.gone = True
        if self._serving is not None and (self._server is None or not self._server.gone):
            self._serving.alone()

    def _break_client(self, reason: str) -> None:
        if not self._client.gone:
            self._client_goes()
            self._inbox.append(StreamEnd(rpc_error(grpc.StatusCode.UNAVAILABLE, reason)))
            self._news.set()

    # Network

    @property
    def _up(self) -> bool:
        return self._network.reachable(self._client.process.name, self._to)

    def _fault(self, sender: str, to: str, *, repeats: bool = False) -> CallFault | None:
        fault = faults.resent(
            self._network.fault_plan.fault_of_call(sender, to, self._network.schedule.now, repeats=repeats)
        )
        if fault is not None:
            self._note_fault()
        return fault

    def _note_fault(self) -> None:
        self._connection_faults.note(self._client.process.name, self._to, self._network.schedule.now)

    def _arrive(self, path: str, payload: bytes) -> None:
        server = server_at(self._network.nodes[self._to].process)
        if not self._up or server is None:
            self._network.schedule.call_in(PING_S / 2, self._break_client, f"{self._to} cannot be reached.")
            return
        self._server = Side(server.process)
        server.process.at_end.append(self._server_dies)
        self._serving = ServedCall(server, path, payload, self._write)
        if self._client.gone:
            self._serving.alone()
        self._network.schedule.call_in(PING_S * self._network.random.random(), self._look)

    def _arrive_again(self, path: str, payload: bytes) -> None:
        """Repeat the request, as a proxy might."""
        server = server_at(self._network.nodes[self._to].process)
        if self._up and server is not None:
            again = ServedCall(server, path, payload, _do_nothing)
            self._network.schedule.call_in(self._network.trip_s(), again.cut)

    # Server side

    async def _write(self, message: bytes | StreamEnd) -> None:
        """Send a message; wait while the connection is blocked."""
        while not self._up and not self._client.gone:
            await until(self._room)
        assert self._server is not None
        fault = self._fault(self._to, self._client.process.name)
        if fault is not None and fault.what in (faults.REQUEST_LOST, faults.REPLY_LOST):
            self._snap()
            return
        late_s = fault.seconds if fault is not None else self._network.trip_s()
        self._due = max(self._due, self._network.schedule.now + late_s)
        self._under_way.append(message)
        self._server.gone = self._server.gone or isinstance(message, StreamEnd)
        self._network.schedule.call_at(self._due, self._deliver)

    def _snap(self) -> None:
        """Break the connection with all messages on it; each side notices later."""
        self._snapped = True
        schedule, drawn = self._network.schedule, self._network.random
        self._network.watcher.saw("a stream breaks")
        schedule.call_in(2 * PING_S * drawn.random(), self._break_client, "The stream broke.")
        schedule.call_in(2 * PING_S * drawn.random(), self._break_server)

    def _deliver(self) -> None:
        if not self._up:
            self._stuck += 1
            self._note_fault()
        elif self._under_way and not self._client.gone and not self._snapped:
            message = self._under_way.popleft()
            if isinstance(message, StreamEnd):
                self._client.gone = True
            self._inbox.append(message)
            self._news.set()

    def _server_dies(self) -> None:
        assert self._server is not None
        if not self._server.gone:
            self._server.gone = True
            if self._up and self._network.random.random() >= WITHOUT_A_WORD:
                self._network.schedule.call_in(
                    self._network.trip_s(), self._break_client, "Connection reset."
                )

    def _break_server(self) -> None:
        if self._server is not None and self._serving is not None and not self._server.gone:
            self._server.gone = True
            self._serving.cut()

    # Pings

    def _look(self) -> None:
        """Ping both sides and deliver delayed messages.

        The stream of a dead side ends.
        """
        server, client = self._server, self._client
        assert server is not None
        if self._up:
            stuck, self._stuck = self._stuck, 0
            for _ in range(stuck):
                self._deliver()
            self._room.set()
        for side, end in ((client, self._break_server), (server, self._hang_up)):
            ready = self._up and side.answers
            side.missed = 0 if ready else side.missed + 1
            unread = side is server and self._under_way
            if side.missed > 1 or (ready and side.gone and not unread):
                end()
        if not (server.gone and client.gone):
            self._network.schedule.call_in(PING_S, self._look)

    def _hang_up(self) -> None:
        self._break_client(f"{self._to} does not answer its pings.")


class ServedCall:
    """The execution of a streaming call in the process of its server."""

    def __init__(
        self, server: WireServer, path: str, payload: bytes, write: Callable[[bytes | StreamEnd], Any]
    ) -> None:
        self._server = server
        self._write = write
        self._method = server.method(path)
        self._name = named(path)
        self._request = self._method.request_deserializer(payload)
        self._task = server.process.loop.create_task(self._serve(), name=path)

    def alone(self) -> None:
        """Report that the receiver has disconnected."""
        self._server.observer.alone(self._request)

    def cut(self) -> None:
        """Cancel the call, as gRPC does for a broken connection."""
        self._task.cancel()

    async def _serve(self) -> None:
        method, observer, request = self._method, self._server.observer, self._request
        observer.request_received(self._name, request)
        try:
            async with aclosing(method.unary_stream(request, CallContext())) as messages:
                async for message in messages:
                    observer.answer_sent(self._name, request, message)
                    await self._write(method.response_serializer(message))
        except RefusedCall as refused:
            observer.refuses(self._name, request)
            await self._write(StreamEnd(refused.error))
        except Exception as crash:  # noqa: BLE001 - any exception is a finding
            self._server.crashed(self._name, crash)
        else:
            await self._write(StreamEnd())


async def _do_nothing(_message: bytes | StreamEnd) -> None:
    """Drop the message."""
