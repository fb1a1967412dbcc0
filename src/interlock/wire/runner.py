"""What a runner and the orchestrator say to each other.

A runner asks for work and is given *grants*. Everything it says after that carries the token of its
lease, which is a secret and a fence, and a number that grows with each message about the attempt: a
message that arrives twice does nothing the second time. Answers come in the order of the messages.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, TypeAlias

import msgspec

MAX_TASKS = 1_000
"""How many tasks a runner names; one that has more names none, and may be given any."""


class Secretive(msgspec.Struct, frozen=True, gc=False):
    """Base of what carries a lease's token or a job's secrets: whatever prints it does not print them."""

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
    """A runner asks for work."""

    runner_id: str
    queues: tuple[str, ...] = ("default",)
    labels: tuple[str, ...] = ()
    """What the runner has; it is given nothing that needs more."""
    tasks: tuple[str, ...] | None = None
    """The tasks that the runner has; it is given no other. None: it may be given any task."""
    limit: int = 1
    worker_id: str = ""
    """Under which it is registered with the supervisor; who is held is given nothing."""
    acknowledge: bool = True
    """The runner begins at once, so that grant and acknowledgement are one step."""
    claim_id: str = ""
    """A name that the runner draws for this request: sent again with it, to whomever, it is answered as
    before. The secrets of its leases follow from it: at least 128 bits that nobody else knows."""
    wait_s: float = 0.0
    """How long to wait for work when there is none; a server waits for 30 s at most."""
    tell_under_way: bool = False
    """Also say, when there is nothing, whether something in these queues is under way: it may come back."""


class Grant(Secretive, frozen=True, kw_only=True, gc=False):
    """One attempt that a runner has been given, and all it needs to execute it."""

    token: str
    """The lease: whoever has it may speak about the attempt. Never logged, never listed."""
    job_id: str
    task: str
    input: msgspec.Raw
    shard: int = 1
    shards: int = 1
    attempt: int = 1
    """The index of this try at the shard, from 1."""
    fence: int
    """Grows with every grant of the job, also after a fail-over: for systems outside."""
    checkpoint: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """What an earlier attempt at the shard has saved."""
    queue: str = "default"
    parent_job_id: str | None = None
    depth: int = 0
    acknowledged: bool = True
    granted_at: datetime
    expires_at: datetime
    ttl_s: float
    heartbeat_every_s: float
    timeout_s: float
    """How long the attempt may take before it is timed out."""
    trace: dict[str, str] = {}
    """The context of the trace that the submission belonged to."""
    secrets: dict[str, str] = {}
    """The values of the secrets that the job names. Never stored, logged or shown; not even masked."""
    secrets_withheld: bool = False
    """The job names secrets and is not given them."""
    untrusted: bool = False
    """The job runs what somebody without write access has proposed, as in a pull request from a fork."""


class LogLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One line that a handler wrote. The time is the runner's, and information only."""

    at: datetime
    level: str
    text: str


def size_of(line: LogLine) -> int:
    """How many bytes a line takes in the log of its attempt: its text, and a line feed."""
    return (len(line.text) if line.text.isascii() else len(line.text.encode(errors="replace"))) + 1


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How far an attempt says it is."""

    done: float | None = None
    total: float | None = None
    message: str = ""


class RunnerMessage(Secretive, frozen=True, kw_only=True, tag_field="type", gc=False):
    """Base of what is said under a lease."""

    token: str
    runner_id: str
    sequence: int = 0
    """Grows with each message of a type; the same number again is a repeat. 0: not numbered, never one."""
    log: tuple[LogLine, ...] = ()
    log_offset: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None
    """Where in the log of the attempt these lines begin, in bytes of UTF-8 with a line feed after each
    line. So lines may come twice and are stored once, and what is missing is known. None: at the end."""


class Ack(RunnerMessage, frozen=True, kw_only=True, tag="ack"):
    """The runner begins."""


class Heartbeat(RunnerMessage, frozen=True, kw_only=True, tag="heartbeat"):
    """The runner is still at it; whatever is given replaces what was known."""

    progress: Progress | None = None
    checkpoint: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    uploading: bool = False
    """The work is done, and its artifacts are on their way: the attempt is UPLOADING from now on."""


class Succeeded(msgspec.Struct, frozen=True, tag="succeeded", tag_field="outcome", gc=False):
    """The handler has returned this."""

    result: msgspec.Raw = msgspec.Raw(b"null")


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed", tag_field="outcome", gc=False):
    """The handler has failed. The orchestrator finds the class, unless the runner knows better."""

    error: str
    """What went wrong, in a line."""
    exception: str = ""
    """The type and those it derives from, most special first, separated by spaces."""
    exit_code: int | None = None
    details: str = ""
    """The traceback or the last output."""
    failure_class: str = ""
    retry_after_s: float | msgspec.UnsetType = msgspec.UNSET
    """How long to wait before the next attempt, if there is one; otherwise as its retry rule says."""
    logged: bool = False
    """The log of the attempt has the details already; they are not added to it."""


class Complete(RunnerMessage, frozen=True, kw_only=True, tag="complete"):
    """The runner says how the attempt ended."""

    outcome: Succeeded | Failed
    cost: float | None = None


class CancelAck(RunnerMessage, frozen=True, kw_only=True, tag="cancel-ack"):
    """The runner has stopped, as it was asked to."""

    confirmed_dead: bool = True
    """Whether everything that the attempt had started is known to be gone."""


class Release(RunnerMessage, frozen=True, kw_only=True, tag="release"):
    """The runner gives the attempt back unfinished: it has to go, or waits for the job's children."""

    reason: str = "shutdown"
    checkpoint: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    cost: float | None = None
    await_children: bool = False
    """It is to be given out again when the children of the job have ended, and not before."""


Message: TypeAlias = Ack | Heartbeat | Complete | CancelAck | Release


class StaleCode(StrEnum):
    """Why what a runner says is not believed any more."""

    LEASE_EXPIRED = "LEASE_EXPIRED"
    LEASE_REVOKED = "LEASE_REVOKED"
    UNKNOWN_LEASE = "UNKNOWN_LEASE"


class Heard(
    msgspec.Struct, frozen=True, kw_only=True, tag="heard", tag_field="answer", omit_defaults=True, gc=False
):
    """The message was accepted, now or when it came before."""

    state: str
    """Of the attempt."""
    expires_at: datetime | None = None
    ttl_s: float | None = None
    cancel_requested: bool = False
    cancel_deadline_at: datetime | None = None


class Stale(msgspec.Struct, frozen=True, kw_only=True, tag="stale", tag_field="answer", gc=False):
    """The lease has ended: stop the work, nothing more will be believed."""

    code: StaleCode
    error: str
    todo: str = "Stop the work; somebody else may be at it. Ask for new work."


class NotHeard(msgspec.Struct, frozen=True, kw_only=True, tag="refused", tag_field="answer", gc=False):
    """The message was refused; the lease lives on."""

    code: str
    error: str
    todo: str = ""
    facts: dict[str, object] = {}


Answer: TypeAlias = Heard | Stale | NotHeard


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner should know before it asks for work."""

    protocol: int = 1
    now: datetime
    """The store's time; a runner's own clock is information only."""
    lease_ttl_s: float
    heartbeat_every_s: float
    ack_window_s: float
    max_grants: int
    max_messages: int
    max_wait_s: float
    max_body_bytes: int = 1_048_576
    """How large a request may be."""


class Granted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a runner was given; nothing when there is none."""

    grants: tuple[Grant, ...]
    now: datetime
    under_way: bool | None = None
    """Whether others have something of these queues in hand, or it waits to be tried again; where asked."""
    held: str = ""
    """Why the runner is given nothing although there may be work: it is quarantined."""


class Messages(msgspec.Struct, frozen=True, kw_only=True):
    """Several messages at once, of any type."""

    messages: tuple[Message, ...]


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers, in the order of the messages."""

    answers: tuple[Answer, ...]
    now: datetime
