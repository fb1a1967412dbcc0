"""Claims about jobs that only worlds can check: about clients, handlers and repeated reports.

Claims about a job's values, steps, submissions, grants and end are in `interlock_verification.claims`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from interlock.lifecycles import job
from interlock.wire.runner import Answer
from interlock_verification.claims import ASKED_FOR, KEPT, FactClaim
from interlock_verification.required_events import TWICE


class RepeatedReport(NamedTuple):
    """A final report that is not accepted."""

    report: str
    answer: Answer
    accepted_before: bool
    """Whether the same report was accepted, and its attempt is still recorded."""

    def __str__(self) -> str:
        return f"{self.report} → {self.answer}"


class CanceledJob(NamedTuple):
    """A canceled job."""

    job_id: str
    reason: str | None
    requested: bool
    """Whether there is a request, a timeout or another reason for it."""

    def __str__(self) -> str:
        return f"{self.job_id} was canceled: {self.reason}"


class AcknowledgedJob(NamedTuple):
    """An acknowledged submission that is looked up."""

    job_id: str
    stored: bool
    """Whether the job is stored, or was pruned after its end."""

    def __str__(self) -> str:
        return f"{self.job_id} was acknowledged, has not ended and is not there"


class RepeatedSubmission(NamedTuple):
    """Two answers to one submission."""

    number: int
    first: str
    again: str

    def __str__(self) -> str:
        return f"submission {self.number} is {self.first}, then {self.again}"


class ReportedEnd(NamedTuple):
    """The state that a client receives when it has waited for a job."""

    job_id: str
    state: str

    def __str__(self) -> str:
        return f"{self.job_id} is {self.state}"


class WaitingClients(NamedTuple):
    """The jobs that clients wait for when every job has ended."""

    jobs: Sequence[str]

    def __str__(self) -> str:
        return f"a client still waits for {list(self.jobs)}, and every job has ended"


class ExplainedJob(NamedTuple):
    """The explanation of a job for a client."""

    job_id: str
    state: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.job_id} is {self.state}"


class BusyWorker(NamedTuple):
    """A worker when a handler starts."""

    worker: str
    handlers: int
    slots: int

    def __str__(self) -> str:
        return f"{self.worker} runs {self.handlers} of {self.slots}"


class StartedHandler(NamedTuple):
    """A handler that starts, and the earlier handlers of its shard that still run."""

    worker: str
    attempt: str
    running: Sequence[str]
    """Attempts of undisturbed runners that have lost their leases."""

    def __str__(self) -> str:
        return f"{self.worker} begins {self.attempt} while {' and '.join(self.running)} still run"


WORLD_JOB_CLAIMS: Sequence[FactClaim[Any]] = (
    FactClaim("report.repeated", TWICE, RepeatedReport, lambda report: not report.accepted_before),
    FactClaim("job.cancel_was_requested", ASKED_FOR, CanceledJob, lambda canceled: canceled.requested),
    FactClaim("client.stored", KEPT, AcknowledgedJob, lambda acknowledged: acknowledged.stored),
    FactClaim(
        "client.same_answer",
        "a repeated request gets the same answer",
        RepeatedSubmission,
        lambda answers: answers.first == answers.again,
    ),
    FactClaim(
        "client.learns_of_end",
        "a client that waits for a job learns of its end",
        ReportedEnd,
        lambda end: end.state in job.ENDED,
    ),
    FactClaim(
        "client.wait_ends",
        "no client waits for a job when every job has ended",
        WaitingClients,
        lambda clients: not clients.jobs,
    ),
    FactClaim(
        "client.explained",
        "every unfinished job can be explained",
        ExplainedJob,
        lambda explained: bool(explained.sentence),
    ),
    FactClaim(
        "handler.slots",
        "a worker runs no more handlers at once than it has slots for",
        BusyWorker,
        lambda worker: worker.handlers <= worker.slots,
    ),
    FactClaim(
        "handler.alone",
        "a runner that lost its lease stops before another begins, unless it was frozen",
        StartedHandler,
        lambda started: not started.running,
    ),
)
