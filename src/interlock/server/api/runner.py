"""The runner protocol: ask for work, and say what becomes of it.

One message at a time is answered like any request, with a problem where it is not heard. Several at
once are always answered with 200, and each of them with an answer of its own.

A runner calls itself what it likes. Where it has a token, the name of that goes before it: so nobody
can speak for the runner of somebody else, and the journal says whose it was.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from interlock.api import runner as api
from interlock.errors import BadRequest, ClaimOver
from interlock.server.authentication import lease_of
from interlock.server.requests import ClientGone, decode
from interlock.server.routes import Call, handles
from interlock.systems.access.principals import Principal
from interlock.systems.orchestrator.tokens import raise_for_answer
from interlock.wire.runner import (
    MAX_TASKS,
    Ack,
    Answers,
    CancelAck,
    ClaimRequest,
    Complete,
    Grant,
    Granted,
    Greeting,
    Heard,
    Heartbeat,
    Message,
    Messages,
    Release,
    RunnerMessage,
)

MAX_GRANTS = 500
MAX_MESSAGES = 500
MAX_WAIT_S = 30.0
MAX_NAME = 200
MAX_NAMES = 100

_Said = TypeVar("_Said", bound=ClaimRequest | Message)


@handles(api.GREET_RUNNER)
async def greet(call: Call) -> Greeting:
    """What a runner should know before it asks for work."""
    durations = call.parts.runtime.orchestrator.settings.durations
    return Greeting(
        now=await call.parts.runtime.engine.clock.now(),
        lease_ttl_s=durations.lease_ttl_s,
        heartbeat_every_s=durations.heartbeat_every_s,
        ack_window_s=durations.ack_window_s,
        max_grants=MAX_GRANTS,
        max_messages=MAX_MESSAGES,
        max_wait_s=MAX_WAIT_S,
        max_body_bytes=call.parts.settings.max_body_bytes,
    )


@handles(api.LEASE_ATTEMPTS)
async def lease(call: Call) -> Granted | Response:
    """Work for a runner; it waits for some when there is none, and is not given any once it has gone."""
    asked: ClaimRequest = call.body
    _check_claim(asked)
    call.principal.need_queues(asked.queues)
    asked = _named(call.principal, asked)
    here, room = call.parts.runtime, call.parts.waiting_room
    if asked.worker_id and not await here.workers.takes(asked.worker_id, actor=call.actor):
        return Granted(grants=(), now=await here.engine.clock.now())  # it is held, or it is over
    if why := here.quarantine.why_not(asked.runner_id):
        return _held(call, asked, why)
    claim = room.together(here.orchestrator.claim_all)
    if asked.wait_s <= 0 and not asked.claim_id:
        return await _granted(call, asked, await claim(asked))

    async def give_back(grants: list[Grant]) -> None:
        await here.orchestrator.take_back(asked.runner_id, grants)

    async def wait() -> Granted:
        within_s = max(0.0, min(asked.wait_s, MAX_WAIT_S))
        whom, stop = call.principal.name, call.parts.ending(call.principal)
        try:
            given = await room.claim(whom, asked, claim, give_back, within_s=within_s, unless=stop)
        except ClaimOver:
            given = []
        return await _granted(call, asked, given)

    return LongPoll(wait)


async def _granted(call: Call, asked: ClaimRequest, given: list[Grant]) -> Granted:
    """What a runner is told; where there is nothing, perhaps what others are at."""
    here = call.parts.runtime
    grants = await here.unless_held(asked, given)
    under_way = None
    if asked.tell_under_way and not grants:
        under_way = await here.jobs.under_way(asked.queues)
    return Granted(grants=tuple(grants), now=await here.engine.clock.now(), under_way=under_way)


def _held(call: Call, asked: ClaimRequest, why: str) -> Response:
    """It is answered as if there were nothing, when its patience is over; so it does not ask all the time."""

    async def wait() -> Granted:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(asked.wait_s, MAX_WAIT_S))):
                await call.parts.ending(call.principal).wait()
        return Granted(grants=(), now=await call.parts.runtime.engine.clock.now(), held=why)

    return LongPoll(wait)


class LongPoll(Response):
    """An answer that may take its time, and is not wanted any more when whoever asked has gone."""

    def __init__(self, answer: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        super().__init__(media_type="application/json")
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer once there is something to say."""
        answer = asyncio.create_task(self._answer())
        gone = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ClientGone
            body = msgspec.json.encode(answer.result())
        finally:
            for each in (answer, gone):
                each.cancel()
            await asyncio.wait((answer, gone))
        await Response(body, media_type="application/json")(scope, receive, send)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def known_as(principal: Principal, runner_id: str) -> str:
    """What a runner is called in leases and in the journal."""
    if principal.claim:
        return principal.name
    if not (1 <= len(runner_id) <= MAX_NAME and runner_id.isprintable()):
        raise BadRequest(
            f"The name of a runner has 1 to {MAX_NAME} printable characters.",
            todo="Give it another one.",
            facts={"runner_id": runner_id[:MAX_NAME]},
        )
    return f"{principal.name}/{runner_id}" if principal.token_id else runner_id


def _named(principal: Principal, said: _Said) -> _Said:
    """What a runner asks or says, under the name that it is known by."""
    if principal.claim and isinstance(said, RunnerMessage):
        lease_of(principal, said.token)
    name = known_as(principal, said.runner_id)
    return said if name == said.runner_id else msgspec.structs.replace(said, runner_id=name)


def _check_claim(asked: ClaimRequest) -> None:
    if not 1 <= asked.limit <= MAX_GRANTS:
        raise BadRequest(
            f"A runner asks for 1 to {MAX_GRANTS} attempts at once, not {asked.limit}.",
            todo="Ask for fewer, and again.",
            facts={"limit": asked.limit, "most": MAX_GRANTS},
        )
    if not asked.queues or max(len(asked.queues), len(asked.labels)) > MAX_NAMES:
        raise BadRequest(
            f"A runner names 1 to {MAX_NAMES} queues, and up to {MAX_NAMES} labels.",
            todo='Name the queues that it works for: {"queues": ["default"]}',
            facts={"queues": len(asked.queues), "labels": len(asked.labels)},
        )
    tasks = asked.tasks or ()
    if len(tasks) > MAX_TASKS:
        raise BadRequest(
            f"A runner names up to {MAX_TASKS} tasks, not {len(tasks)}.",
            todo="Leave `tasks` out to be given any task.",
            facts={"tasks": len(tasks), "most": MAX_TASKS},
        )
    if any(len(name) > MAX_NAME for name in (*asked.queues, *asked.labels, *tasks, asked.claim_id)):
        raise BadRequest(
            f"The name of a queue, a label, a task or a claim has at most {MAX_NAME} characters.",
            todo="Shorten it.",
            facts={"most": MAX_NAME},
        )


@handles(api.SAY_MESSAGES)
async def say_all(call: Call) -> Answers:
    """Several messages of any type; each has an answer of its own."""
    return await _answers(call, call.body.messages)


async def _answers(call: Call, messages: Sequence[Message]) -> Answers:
    if len(messages) > MAX_MESSAGES:
        raise BadRequest(
            f"At most {MAX_MESSAGES} messages are heard at once, not {len(messages)}.",
            todo="Send them in several requests.",
            facts={"messages": len(messages), "most": MAX_MESSAGES},
        )
    answers = await call.parts.hearing.hear([_named(call.principal, message) for message in messages])
    return Answers(answers=tuple(answers), now=await call.parts.runtime.engine.clock.now())


def say(kind: type[RunnerMessage]) -> Callable[[Call], Awaitable[Heard | Answers]]:
    """The handler of one type of message, one or several at a time."""

    async def handle(call: Call) -> Heard | Answers:
        if isinstance(call.body, Messages):
            return await _answers(call, call.body.messages)
        (answer,) = await call.parts.hearing.hear((_named(call.principal, call.body),))
        return raise_for_answer(answer)

    handle.__doc__ = kind.__doc__
    return handle


class _Several(msgspec.Struct):
    """As much as is needed to know whether it is one message or many."""

    messages: tuple[msgspec.Raw, ...] | msgspec.UnsetType = msgspec.UNSET


_SEVERAL = msgspec.json.Decoder(_Several)


def _reader(kind: type[Any]) -> Any:
    """Reads one message, or several under `messages`; the address says of which type they are."""
    decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(kind)
    tag = kind.__struct_config__.tag

    opening = b'{"type":%s,' % msgspec.json.encode(tag)

    def read(body: bytes) -> Message | Messages:
        if b'"messages"' not in body:
            # One message that leaves its type to the address, as nearly all of them: one look is enough.
            # Whatever else it is, it is read again below, and told what is wrong with it.
            stripped = body.lstrip()
            if stripped.startswith(b"{"):
                with suppress(msgspec.DecodeError, UnicodeDecodeError):
                    return decoder.decode(body if b'"type"' in body else opening + stripped[1:])
        several = decode(_SEVERAL, body).messages
        if several is msgspec.UNSET:
            message: Message = decode(decoder, _typed(body, tag))
            return message
        return Messages(messages=tuple(decode(decoder, _typed(bytes(one), tag)) for one in several))

    return read


def _typed(body: bytes, tag: object) -> bytes:
    """With the type that the address implies, unless the message says it itself."""
    fields = decode(_FIELDS, body)
    if "type" in fields:
        return body
    return msgspec.json.encode({"type": msgspec.Raw(msgspec.json.encode(tag)), **fields})


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])

for _operation, _kind in (
    (api.ACK_LEASE, Ack),
    (api.HEARTBEAT, Heartbeat),
    (api.LOG, Heartbeat),
    (api.COMPLETE, Complete),
    (api.ACK_CANCEL, CancelAck),
    (api.RELEASE, Release),
):
    handles(_operation, read=_reader(_kind))(say(_kind))
