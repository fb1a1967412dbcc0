"""The runner protocol: messages between a runner and the orchestrator.

A runner claims work and receives *grants*. Every later message carries the token of the lease, which is a
secret and a fence, and a sequence number that grows with each message about the attempt: a message that
arrives twice has no effect the second time. Answers come in the order of the messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, TypeAlias

import msgspec

MAX_TASKS = 1_000
"""Maximum number of tasks that a runner names; one with more tasks names none and accepts any."""


class Secretive(msgspec.Struct, frozen=True, gc=False):
    """Base of structs with the token of a lease or the secrets of a job: their repr omits these."""

    def __repr__(self) -> str:
        shown = (f"{name}={_without_secret(name, getattr(self, name))}" for name in self.__struct_fields__)
        return f"{type(self).__name__}({', '.join(shown)})"


def _without_secret(name: str, value: object) -> str:
    if name == "token":
        return f"{str(value).rpartition('.')[0]}.…"
    if name == "secrets" and isinstance(value, dict):
        return "{" + ", ".join(f"{each!r}: …" for each in value) + "}"
    return repr(value)


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Request of a runner for work."""

    runner_id: str
    queues: tuple[str, ...] = ("default",)
    labels: tuple[str, ...] = ()
    """Labels of the runner; it receives no job that needs others."""
    tasks: tuple[str, ...] | None = None
    """Tasks of the runner; it receives no other. None: it accepts any task."""
    limit: int = 1
    worker_id: str = ""
    """Id under which the worker is registered with the supervisor; a held worker receives nothing."""
    acknowledge: bool = True
    """The runner starts at once, so grant and acknowledgement are one step."""
    claim_id: str = ""
    """Random id of this request: repeated with it, to any server, the request gets the same answer. The
    secrets of the leases derive from it, so it has at least 128 secret bits.
    """
    wait_s: float = 0.0
    """Time to wait for work when there is none; a server waits for 30 s at most."""
    tell_under_way: bool = False
    """With an empty answer, also tell whether jobs of these queues are in progress and may be requeued."""


class Grant(Secretive, frozen=True, kw_only=True, gc=False):
    """An attempt that a runner receives, with all that it needs to execute it."""

    token: str
    """Token of the lease, which authorizes messages about the attempt. Never logged, never listed."""
    job_id: str
    task: str
    input: msgspec.Raw
    shard: int = 1
    shards: int = 1
    attempt: int = 1
    """Number of the attempt at the shard, from 1."""
    fence: int
    """Fencing token for external systems: grows with every grant of the job, also after a failover."""
    checkpoint: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Checkpoint that an earlier attempt at the shard saved."""
    queue: str = "default"
    parent_job_id: str | None = None
    depth: int = 0
    acknowledged: bool = True
    granted_at: datetime
    expires_at: datetime
    ttl_s: float
    heartbeat_every_s: float
    timeout_s: float
    """Timeout of the attempt."""
    trace: dict[str, str] = {}
    """Trace context of the submission."""
    secrets: dict[str, str] = {}
    """The values of the secrets that the job names. Never stored, logged or shown; not even masked."""
    secrets_withheld: bool = False
    """The job names secrets but does not receive them."""
    metadata: dict[str, str] = {}
    """Texts by name that the job was submitted with."""
    untrusted: bool = False
    """The job runs code from an author without write access, as in a pull request from a fork."""


class LogLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A line that a handler wrote. The time is the runner's, and information only."""

    at: datetime
    level: str
    text: str


def size_of(line: LogLine) -> int:
    """Return the size in bytes of a line and its line feed in a log."""
    return (len(line.text) if line.text.isascii() else len(line.text.encode(errors="replace"))) + 1


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Progress that an attempt reports."""

    done: float | None = None
    total: float | None = None
    message: str = ""


class RunnerMessage(Secretive, frozen=True, kw_only=True, tag_field="type", gc=False):
    """Base of messages under a lease."""

    token: str
    runner_id: str
    sequence: int = 0
    """Sequence number, growing with each message of a type; a repeated number marks a repeat. 0: none."""
    log: tuple[LogLine, ...] = ()
    log_offset: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None
    """Position of these lines in the log of the attempt, in bytes of UTF-8 with a line feed after each
    line. So repeated lines are stored once and missing ones are detected. None: at the end.
    """


class Ack(RunnerMessage, frozen=True, kw_only=True, tag="ack"):
    """The runner starts the attempt."""


class Heartbeat(RunnerMessage, frozen=True, kw_only=True, tag="heartbeat"):
    """The attempt is alive; fields that are set replace earlier values."""

    progress: Progress | None = None
    checkpoint: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    uploading: bool = False
    """The handler has returned and artifacts are being uploaded: the attempt becomes UPLOADING."""


class Succeeded(msgspec.Struct, frozen=True, tag="succeeded", tag_field="outcome", gc=False):
    """The handler has returned this result."""

    result: msgspec.Raw = msgspec.Raw(b"null")


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed", tag_field="outcome", gc=False):
    """The handler has failed. The orchestrator classifies the failure, unless the runner gives a class."""

    error: str
    """Error message, one line."""
    exception: str = ""
    """Type of the exception and its base types, most specific first, separated by spaces."""
    exit_code: int | None = None
    details: str = ""
    """The traceback or the last output."""
    failure_class: str = ""
    retry_after_s: float | msgspec.UnsetType = msgspec.UNSET
    """Delay before the next attempt, if there is one; by default that of its retry rule."""
    retry_at: datetime | msgspec.UnsetType = msgspec.UNSET
    """Time of the next attempt, by the store's clock; takes precedence over `retry_after_s`."""
    logged: bool = False
    """The log of the attempt already contains the details; they are not added to it."""


class Complete(RunnerMessage, frozen=True, kw_only=True, tag="complete"):
    """The attempt has ended with this outcome."""

    outcome: Succeeded | Failed
    cost: float | None = None


class CancelAck(RunnerMessage, frozen=True, kw_only=True, tag="cancel-ack"):
    """The runner has stopped the attempt, as requested."""

    confirmed_dead: bool = True
    """Whether all processes of the attempt are known to be dead."""


class Release(RunnerMessage, frozen=True, kw_only=True, tag="release"):
    """The runner returns the attempt unfinished: it shuts down, or waits for children or a signal."""

    reason: str = "shutdown"
    checkpoint: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    cost: float | None = None
    await_children: bool = False
    """Grant it again only when the children of the job have ended."""
    await_signal: str | msgspec.UnsetType = msgspec.UNSET
    """Grant it again only when this wait of the job has an answer."""
    snooze_s: float | msgspec.UnsetType = msgspec.UNSET
    """Seconds before the job may be leased again. Only for a server that `snoozes`."""
    snooze_until: datetime | msgspec.UnsetType = msgspec.UNSET
    """The same as a time."""


Message: TypeAlias = Ack | Heartbeat | Complete | CancelAck | Release


class StaleCode(StrEnum):
    """Reason why messages of a runner are refused."""

    LEASE_EXPIRED = "LEASE_EXPIRED"
    LEASE_REVOKED = "LEASE_REVOKED"
    UNKNOWN_LEASE = "UNKNOWN_LEASE"


class Heard(
    msgspec.Struct, frozen=True, kw_only=True, tag="heard", tag_field="answer", omit_defaults=True, gc=False
):
    """The message was accepted, now or when it first arrived."""

    state: str
    """State of the attempt."""
    expires_at: datetime | None = None
    ttl_s: float | None = None
    cancel_requested: bool = False
    cancel_deadline_at: datetime | None = None


class Stale(msgspec.Struct, frozen=True, kw_only=True, tag="stale", tag_field="answer", gc=False):
    """The lease has ended: the runner must stop the work, and further messages are refused."""

    code: StaleCode
    error: str
    todo: str = "Stop the work; another runner may execute it. Claim new work."


class NotHeard(msgspec.Struct, frozen=True, kw_only=True, tag="refused", tag_field="answer", gc=False):
    """The message was refused; the lease stays valid."""

    code: str
    error: str
    todo: str = ""
    facts: dict[str, object] = {}


Answer: TypeAlias = Heard | Stale | NotHeard
SendMessages: TypeAlias = Callable[[Sequence[Message]], Awaitable[list[Answer]]]
"""Reports messages of runners; returns their answers in order."""


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the server that a runner needs before it claims work."""

    protocol: int = 1
    now: datetime
    """Time of the store; a runner's own clock is information only."""
    lease_ttl_s: float
    heartbeat_every_s: float
    ack_window_s: float
    max_grants: int
    max_messages: int
    max_wait_s: float
    max_body_bytes: int = 1_048_576
    """Maximum size of a request."""
    snoozes: bool = False
    """Whether it heeds `snooze_s` and `snooze_until` of a release; earlier versions do not."""


class Granted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Grants for a runner; none when there is no work."""

    grants: tuple[Grant, ...]
    now: datetime
    under_way: bool | None = None
    """Whether other runners execute jobs of these queues, or a retry is due; only where asked."""
    held: str = ""
    """Reason why the runner receives nothing although there may be work: it is quarantined."""


class Messages(msgspec.Struct, frozen=True, kw_only=True):
    """Several messages of any type in one request."""

    messages: tuple[Message, ...]


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers, in the order of the messages."""

    answers: tuple[Answer, ...]
    now: datetime
