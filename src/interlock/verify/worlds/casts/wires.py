"""gRPC between the processes of a world: what carries it is the world's network, all else is production.

The stub that the controller calls and the service that the agent offers are the generated ones, with their
bytes; a channel and a server of a world stand where those of gRPC do. There is no rule of the fleet here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import grpc
from grpc import aio

from interlock.errors import StoreUnavailable
from interlock.verify.worlds.calls import Call, Done
from interlock.verify.worlds.fleets import Troubles
from interlock.verify.worlds.stage import Process

REPEATED = ("StartWorkload", "AbortWorkload")
"""What a proxy may send a second time: whoever asks for a status twice learns nothing by it."""


PROMPT_S = 0.1
"""What takes longer has met some trouble."""


class Ears(Protocol):
    """Whoever listens at a server; nothing is decided by it."""

    def hears(self, method: str, request: Any) -> None:
        """A request has arrived, and is about to be answered."""
        ...

    def says(self, method: str, request: Any, message: Any) -> None:
        """An answer, or one of many, is about to go."""
        ...

    def refuses(self, method: str, request: Any) -> None:
        """The request is refused."""
        ...

    def alone(self, request: Any) -> None:
        """Nobody listens any more to what is answered."""
        ...


class RefusedCall(Exception):
    """A service has ended a call with a status that is not OK."""

    def __init__(self, error: aio.AioRpcError) -> None:
        super().__init__(error.details())
        self.error = error


class Context:
    """What a service of a world can do with a call: refuse it."""

    async def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: Sequence[tuple[str, str | bytes]] = (),
    ) -> NoReturn:
        """End the call."""
        raise RefusedCall(rpc_error(code, details, trailing_metadata))


class WireServer:
    """The server of one process: its methods, and how one call is answered."""

    def __init__(self, process: Process, ears: Ears) -> None:
        self.process = process
        self.ears = ears
        self._methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """The same methods, for servers that look them up otherwise."""

    def add_registered_method_handlers(
        self, service: str, methods: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        """What it offers, by the path of each."""
        self._methods |= {f"/{service}/{name}": method for name, method in methods.items()}

    def method(self, path: str) -> Any:
        """How a call of that path is answered."""
        return self._methods[path]

    def answer(self, path: str, payload: bytes, done: Done) -> None:
        """Answer one call, in the process of the server."""
        self.process.loop.create_task(self._answer(path, payload, done), name=path)

    async def _answer(self, path: str, payload: bytes, done: Done) -> None:
        method, name = self.method(path), named(path)
        request = method.request_deserializer(payload)
        self.ears.hears(name, request)
        try:
            answer = await method.unary_unary(request, Context())
        except RefusedCall as refused:
            self.ears.refuses(name, request)
            done(None, refused.error)
        except Exception as crash:  # noqa: BLE001 - whatever it is, it is what is looked for
            self.crashed(name, crash)
        else:
            self.ears.says(name, request, answer)
            done(method.response_serializer(answer), None)

    def crashed(self, name: str, crash: Exception) -> None:
        """Nothing that a service does may end like this, unless its process does."""
        if self.process.alive:
            words = f"{self.process.loop.name} {name}: {crash!r}"
            self.process.stage.watcher.broke("no request crashes", words)


def server_at(process: Process | None) -> WireServer | None:
    """The server of a process that lives and is ready to be asked."""
    if process is None or not process.alive or process.role is None:
        return None
    found: WireServer = process.role.server
    return found


class Asking:
    """Calls with one answer, from a process to a server."""

    def __init__(self, caller: Process, to: str, troubles: Troubles) -> None:
        self._caller = caller
        self._to = to
        self._troubles = troubles

    def method(
        self, path: str, write: Callable[[Any], bytes], read: Callable[[bytes], Any]
    ) -> Callable[..., Any]:
        """What a stub calls."""

        async def ask(request: Any, *, timeout: float, metadata: object = ()) -> Any:  # noqa: ARG001
            return read(await self._asked(path, write(request), timeout))

        return ask

    async def _asked(self, path: str, payload: bytes, within_s: float) -> bytes:
        def arrive(done: Done) -> None:
            server = server_at(self._caller.stage.places[self._to].process)
            if server is None:
                done(None, rpc_error(grpc.StatusCode.UNAVAILABLE, "connection refused"))
            else:
                server.answer(path, payload, done)

        schedule, repeats = self._caller.stage.schedule, named(path) in REPEATED
        sent_at = schedule.now
        try:
            call = Call(self._caller, self._to, arrive, within_s, repeats=repeats, resends=True)
            answer: bytes = await call.answer()
        except StoreUnavailable as silence:
            raise rpc_error(grpc.StatusCode.UNAVAILABLE, silence.sentence) from None
        finally:
            if schedule.now > sent_at + PROMPT_S:
                self._troubles.note(self._caller.name, self._to, schedule.now)
        return answer


def named(path: str) -> str:
    """The method of a path."""
    return path.rpartition("/")[2]


def rpc_error(
    code: grpc.StatusCode, details: str, trailing: Sequence[tuple[str, str | bytes]] = ()
) -> aio.AioRpcError:
    """How a call ends that does not end well."""
    return aio.AioRpcError(code, aio.Metadata(), aio.Metadata(*trailing), details)


async def until(event: asyncio.Event) -> None:
    """Until it is set, and then from the beginning."""
    await event.wait()
    event.clear()
