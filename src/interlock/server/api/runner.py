"""The runner protocol: claim jobs, and report on them.

A single message is answered like any request, with a problem if it is refused. A batch is always answered
with 200, and contains one answer for each message.

A runner chooses its name. If it has a token, the name of the token is prepended: so no runner can
impersonate that of another token, and the journal names the token.
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
from interlock.engine.coalescer import PendingAnswer
from interlock.errors import BadRequest, ClaimOver
from interlock.server.authentication import lease_of
from interlock.server.requests import ClientGone, decode
from interlock.server.routes import Call, handles
from interlock.systems.access.principals import Principal
from interlock.systems.orchestrator.tokens import raise_for_answer
from interlock.wire.runner import (
    MAX_TASKS,
    Ack,
    Answer,
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
    """Return the settings that a runner needs before its first claim."""
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
        snoozes=True,
    )


def lease_directly(call: Call, answer: PendingAnswer[Any]) -> bool:
    """Claim jobs without a task.

    Return False for a claim that may have to wait, or to ask the store.
    """
    body: ClaimRequest = call.body
    if body.wait_s > 0 or body.claim_id or body.worker_id or body.tell_under_way:
        return False
    _check_claim(body)
    call.principal.need_queues(body.queues)
    body, here = _named(call.principal, body), call.parts.runtime
    if here.quarantine.why_not(body.runner_id):
        return False

    def granted(given: list[Grant]) -> Granted:
        return Granted(grants=tuple(given), now=here.engine.clock.estimate())

    call.parts.long_poll.together(here.orchestrator.claim_all).enter(body, answer, granted)
    return True


@handles(api.LEASE_ATTEMPTS, direct=lease_directly)
async def lease(call: Call) -> Granted | Response:
    """Claim jobs for a runner.

    Wait if there are none, and stop when the runner disconnects.
    """
    body: ClaimRequest = call.body
    _check_claim(body)
    call.principal.need_queues(body.queues)
    body = _named(call.principal, body)
    here, room = call.parts.runtime, call.parts.long_poll
    if body.worker_id and not await here.workers.takes(body.worker_id, actor=call.actor):
        return Granted(grants=(), now=await here.engine.clock.now())  # it is paused, or it has ended
    if why := here.quarantine.why_not(body.runner_id):
        return _held(call, body, why)
    claim = room.together(here.orchestrator.claim_all).answer
    if body.wait_s <= 0 and not body.claim_id:
        return await _granted(call, body, await claim(body))

    async def give_back(grants: list[Grant]) -> None:
        await here.orchestrator.take_back(body.runner_id, grants)

    async def wait() -> Granted:
        within_s = max(0.0, min(body.wait_s, MAX_WAIT_S))
        whom, stop = call.principal.name, call.parts.ending(call.principal)
        try:
            given = await room.claim(whom, body, claim, give_back, within_s=within_s, unless=stop)
        except ClaimOver:
            given = []
        return await _granted(call, body, given)

    return LongPollResponse(wait)


async def _granted(call: Call, request: ClaimRequest, given: list[Grant]) -> Granted:
    """Return the grants; without any, optionally the number of jobs under way."""
    here = call.parts.runtime
    grants = await here.unless_held(request, given)
    under_way = None
    if request.tell_under_way and not grants:
        under_way = await here.jobs.under_way(request.queues)
    return Granted(grants=tuple(grants), now=await here.engine.clock.now(), under_way=under_way)


def _held(call: Call, request: ClaimRequest, why: str) -> Response:
    """Return no grants after the wait time of the request.

    So a held runner does not poll in a loop.
    """

    async def wait() -> Granted:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(request.wait_s, MAX_WAIT_S))):
                await call.parts.ending(call.principal).wait()
        return Granted(grants=(), now=await call.parts.runtime.engine.clock.now(), held=why)

    return LongPollResponse(wait)


class LongPollResponse(Response):
    """A response that may take long, and is abandoned when the client disconnects."""

    def __init__(self, answer: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        super().__init__(media_type="application/json")
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response when it is ready."""
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
    """Return the name of a runner in leases and in the journal."""
    if principal.claim:
        return principal.name
    if not (1 <= len(runner_id) <= MAX_NAME and runner_id.isprintable()):
        raise BadRequest(
            f"The name of a runner has 1 to {MAX_NAME} printable characters.",
            todo="Give it another one.",
            facts={"runner_id": runner_id[:MAX_NAME]},
        )
    return f"{principal.name}/{runner_id}" if principal.token_id else runner_id


def _named(principal: Principal, message: _Said) -> _Said:
    """Return a request or message with the full name of its runner."""
    if principal.claim and isinstance(message, RunnerMessage):
        lease_of(principal, message.token)
    name = known_as(principal, message.runner_id)
    return message if name == message.runner_id else msgspec.structs.replace(message, runner_id=name)


def _check_claim(request: ClaimRequest) -> None:
    if not 1 <= request.limit <= MAX_GRANTS:
        raise BadRequest(
            f"A runner can request 1 to {MAX_GRANTS} attempts at once, not {request.limit}.",
            todo="Request fewer at a time.",
            facts={"limit": request.limit, "most": MAX_GRANTS},
        )
    if not request.queues or max(len(request.queues), len(request.labels)) > MAX_NAMES:
        raise BadRequest(
            f"A runner names 1 to {MAX_NAMES} queues, and up to {MAX_NAMES} labels.",
            todo='Name the queues that it works for: {"queues": ["default"]}',
            facts={"queues": len(request.queues), "labels": len(request.labels)},
        )
    tasks = request.tasks or ()
    if len(tasks) > MAX_TASKS:
        raise BadRequest(
            f"A runner names up to {MAX_TASKS} tasks, not {len(tasks)}.",
            todo="Leave `tasks` out to receive any task.",
            facts={"tasks": len(tasks), "most": MAX_TASKS},
        )
    if max(map(len, (*request.queues, *request.labels, *tasks, request.claim_id))) > MAX_NAME:
        raise BadRequest(
            f"The name of a queue, a label, a task or a claim has at most {MAX_NAME} characters.",
            todo="Shorten it.",
            facts={"most": MAX_NAME},
        )


def report_directly(call: Call, answer: PendingAnswer[Any]) -> bool:
    """Process one message or several without a task."""
    body = call.body
    if not isinstance(body, Messages):
        call.parts.messages.enter((_named(call.principal, body),), answer, _answer_in)
        return True
    clock = call.parts.runtime.engine.clock

    def answered(answers: list[Answer]) -> Answers:
        return Answers(answers=tuple(answers), now=clock.estimate())

    call.parts.messages.enter(_named_messages(call, body.messages), answer, answered)
    return True


def _named_messages(call: Call, messages: Sequence[Message]) -> list[Message]:
    if len(messages) > MAX_MESSAGES:
        raise BadRequest(
            f"At most {MAX_MESSAGES} messages are accepted at once, not {len(messages)}.",
            todo="Send them in several requests.",
            facts={"messages": len(messages), "most": MAX_MESSAGES},
        )
    return [_named(call.principal, message) for message in messages]


@handles(api.SAY_MESSAGES, direct=report_directly)
async def receive_messages(call: Call) -> Answers:
    """Process several messages of any type; return an answer for each."""
    return await _answers(call, call.body.messages)


async def _answers(call: Call, messages: Sequence[Message]) -> Answers:
    answers = await call.parts.messages.answer(_named_messages(call, messages))
    return Answers(answers=tuple(answers), now=await call.parts.runtime.engine.clock.now())


def message_handler(kind: type[RunnerMessage]) -> Callable[[Call], Awaitable[Heard | Answers]]:
    """Return the handler of one message type, for one message or a batch."""

    async def handle(call: Call) -> Heard | Answers:
        if isinstance(call.body, Messages):
            return await _answers(call, call.body.messages)
        return _answer_in(await call.parts.messages.answer((_named(call.principal, call.body),)))

    handle.__doc__ = kind.__doc__
    return handle


def _answer_in(answers: Sequence[Answer]) -> Heard:
    """Return the answer to a single message; raise if it was refused."""
    (answer,) = answers
    return answer if type(answer) is Heard else raise_for_answer(answer)


class _Several(msgspec.Struct):
    """Only the field that distinguishes one message from a batch."""

    messages: tuple[msgspec.Raw, ...] | msgspec.UnsetType = msgspec.UNSET


_SEVERAL = msgspec.json.Decoder(_Several)


def _reader(kind: type[Any]) -> Any:
    """Return a function that decodes messages of the type in the path.

    It decodes one message, or several under `messages`.
    """
    decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(kind)
    several_of: Any = tuple[kind, ...]  # type: ignore[valid-type]
    batches: Any = msgspec.json.Decoder(msgspec.defstruct("_Batch", [("messages", several_of)]))
    tag = kind.__struct_config__.tag

    def read(body: bytes) -> Message | Messages:
        # Messages leave their type to the path, or name that one, so one decode is enough. Anything else is
        # decoded again below, which reports the errors.
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if b'"messages"' in body:
                return Messages(messages=batches.decode(body).messages)
            return decoder.decode(body)
        several = decode(_SEVERAL, body).messages
        if several is msgspec.UNSET:
            message: Message = decode(decoder, _typed(body, tag))
            return message
        return Messages(messages=tuple(decode(decoder, _typed(bytes(one), tag)) for one in several))

    return read


def _typed(body: bytes, tag: object) -> bytes:
    """Return the message with the type of the path, unless it has one."""
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
    handles(_operation, read=_reader(_kind), direct=report_directly)(message_handler(_kind))
