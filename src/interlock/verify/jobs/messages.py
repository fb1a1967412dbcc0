"""What a worker of the model says, as the protocol has it, and what it makes of the answer."""

from __future__ import annotations

from collections.abc import Callable

from interlock.systems.orchestrator.tokens import Token
from interlock.verify.jobs.codes import Note, Say
from interlock.verify.jobs.values import runner_of
from interlock.wire.runner import (
    Ack,
    Answer,
    CancelAck,
    Complete,
    Failed,
    Heard,
    Heartbeat,
    Message,
    Release,
    Succeeded,
)

_MESSAGES: dict[Say, Callable[[str, str, int], Message]] = {
    Say.ACK: lambda token, runner, n: Ack(token=token, runner_id=runner, sequence=n),
    Say.BEAT: lambda token, runner, n: Heartbeat(token=token, runner_id=runner, sequence=n),
    Say.SUCCESS: lambda token, runner, n: Complete(
        token=token, runner_id=runner, sequence=n, outcome=Succeeded()
    ),
    Say.FAILURE: lambda token, runner, n: Complete(
        token=token, runner_id=runner, sequence=n, outcome=Failed(error="it failed", failure_class="user")
    ),
    Say.RELEASE: lambda token, runner, n: Release(token=token, runner_id=runner, sequence=n),
    Say.STOPPED: lambda token, runner, n: CancelAck(token=token, runner_id=runner, sequence=n),
}


def message_of(note: Note, token: Token) -> Message:
    """The message that a note stands for."""
    return _MESSAGES[note.say](str(token), runner_of(note.worker), note.number)


def reply_of(note: Note, answer: Answer) -> Say | None:
    """What the worker has to know of the answer."""
    if not isinstance(answer, Heard):
        return Say.OVER
    if note.say is Say.ACK:
        return Say.BEGIN
    if note.say is Say.BEAT:
        return Say.TOLD if answer.cancel_requested else None
    return Say.OVER
