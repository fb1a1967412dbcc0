"""Signals, waits and approvals: what handlers wait for, and what people and programs answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from interlock.wire.access import Role
from interlock.wire.runner import Secretive
from interlock.wire.views import View

MAX_SIGNAL_NAME = 32
SIGNAL_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}"
"""Pattern of the name of a signal or an approval."""
MAX_SIGNAL_BYTES = 16_384
"""Maximum size of the data of a signal, as JSON."""
MAX_QUESTION = 500
MAX_COMMENT = 1_000
MAX_APPROVERS = 20
MAX_WAIT_S = 366 * 86_400.0
"""Maximum timeout of a wait."""
MAX_KEPT = 100
"""Maximum number of signals of a job that no handler has waited for yet."""
MAX_NUMBER = 1_000
"""Maximum number of signals, or of approvals, of a job under one name."""

SignalName = Annotated[str, Meta(pattern=f"^{SIGNAL_NAME}$", max_length=MAX_SIGNAL_NAME)]


class ApprovalQuestion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question that a person approves or rejects."""

    text: Annotated[str, Meta(min_length=1, max_length=MAX_QUESTION)]
    approvers: Annotated[tuple[str, ...], Meta(max_length=MAX_APPROVERS)] = ()
    """Names of the principals that may answer; empty: every one with the role."""
    role: Role = Role.OPERATOR
    """Role that an approver needs, at least `operator`."""


class WaitRequest(Secretive, frozen=True, kw_only=True, omit_defaults=True):
    """A wait of a handler, under the lease of its attempt."""

    token: str
    """Token of the lease of the attempt."""
    runner_id: str
    name: str = ""
    """Name of the signal; of an approval it may be empty."""
    number: Annotated[int, Meta(ge=1, le=MAX_NUMBER)] = 1
    """Number of the wait among those for this name, in the order of the handler: the same number gets the
    same answer, in every attempt."""
    question: ApprovalQuestion | None = None
    """Wait for an approval; None: for a signal."""
    timeout_s: Annotated[float, Meta(gt=0, le=MAX_WAIT_S)] | None = None
    """Time to wait, by the clock of the store; None: `approval_timeout_s` of the server."""


class WaitAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of a wait. While it is `WAITING`, the runner releases the attempt with its id."""

    id: str
    state: str
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Data of the signal."""
    by: str = ""
    comment: str = ""
    at: datetime | None = None
    """Time of the answer."""


class OpenWait(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A wait of a job that has no answer yet."""

    id: str
    name: str = ""
    """Name of the signal or the approval."""
    question: str | None = None
    """Question of an approval; null for a signal."""
    since: datetime
    until: datetime


class SignalView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A signal that was sent to a job."""

    id: str
    job_id: str
    name: str
    number: int
    """Number of the signal among those of this name."""
    state: str
    """`RECEIVED` by a handler that waited, or `KEPT` until one waits."""


class ApprovalView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A question that a job waits for a person to answer, and the answer."""

    id: str
    state: str
    """`WAITING`, `APPROVED`, `REJECTED`, `TIMED_OUT` or `CANCELED`."""
    version: int
    job_id: str
    task: str
    queue: str
    question: str
    name: str = ""
    approvers: tuple[str, ...] = ()
    """Names of the principals that may answer; empty: every one with the role."""
    role: Role = Role.OPERATOR
    run_id: str | None = None
    """The run that the job belongs to."""
    asked_at: datetime
    until: datetime | None = None
    """Time at which it times out, while it waits."""
    by: str = ""
    """Principal that approved or rejected."""
    comment: str = ""
    answered_at: datetime | None = None


class ApprovalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a person, as a handler gets it. It is true if approved."""

    approved: bool
    by: str
    comment: str
    at: datetime | None = None

    def __bool__(self) -> bool:
        return self.approved
