"""A summary of a run for reporters.

A short text, the parts with their own verdict, and failed jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from interlock.lifecycles.job import JobState
from interlock.systems.runs.reports.report import RunReport, RunStatus
from interlock.systems.runs.settings import Statuses
from interlock.wire.runs import RunJobView, RunView, SkippedJob

MAX_FAILED = 20
MAX_ERROR = 300
MAX_JOBS = 50
"""Maximum jobs of a run with one status each: more would take minutes to send."""

_SAYS = {
    RunStatus.AWAITING_APPROVAL: "Waiting for approval",
    RunStatus.PENDING: "Waiting for runners",
    RunStatus.RUNNING: "Running",
    RunStatus.SUCCESS: "Succeeded",
    RunStatus.FAILED: "Failed",
    RunStatus.CANCELED: "Canceled",
    RunStatus.TIMEOUT: "Timed out",
}
NOTHING = "Nothing to do"
_ENDED = (JobState.COMPLETED, JobState.FAILED, JobState.CANCELED)


class PartVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict on a part of a run, or on all of it."""

    path: str = ""
    """Below the name of the run: `lint`, `lint/ruff`; empty for the run itself."""
    status: RunStatus
    says: str
    skipped: bool = False
    """Whether there was no job to run."""


def parts_of(report: RunReport, wanted: Statuses) -> list[PartVerdict]:
    """Return the verdicts to report for a run, its own last."""
    run = report.run
    own = PartVerdict(status=report.status, says=in_words(report), skipped=is_empty(run))
    parts = list(_workflows(report)) if wanted != "run" else []
    if wanted == "job" and len(run.jobs) <= MAX_JOBS:
        parts += [_of_job(report, job) for job in run.jobs]
    return [*parts, own]


def is_empty(run: RunView) -> bool:
    """Return whether a run succeeded without any job."""
    return run.outcome == RunStatus.SUCCESS.upper() and not run.tally


def in_words(report: RunReport) -> str:
    """Return the outcome, the reason, and the number of jobs, in one line."""
    run = report.run
    if is_empty(run):
        return _with_reason(NOTHING, run.skipped[0].why if run.skipped else "")
    if run.error:
        return _with_reason(_SAYS[report.status], run.error)
    why = run.reason if report.status is not RunStatus.SUCCESS else ""
    return _in_words(report.status, failed_jobs(run), why, sum(run.tally.values()))


def shortened(text: str, most: int) -> str:
    """Return at most this many characters of a text."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def failed_jobs(run: RunView) -> list[RunJobView]:
    """Return the failed jobs, in the order of the plan."""
    return [job for job in run.jobs if job.failure is not None]


def _workflows(report: RunReport) -> Iterator[PartVerdict]:
    """Yield a verdict for each workflow file, if there are several."""
    run = report.run
    jobs: dict[str, list[RunJobView]] = {}
    left_out: dict[str, SkippedJob] = {}
    for job in run.jobs:
        jobs.setdefault(job.workflow, []).append(job)
    for each in run.skipped:
        left_out.setdefault(each.workflow, each)
    for name in filter(None, (*jobs, *(name for name in left_out if name not in jobs))):
        if name in jobs:
            status = _word_of(jobs[name], report.status)
            broken = [job for job in jobs[name] if job.failure is not None]
            sentence = _in_words(status, broken, run.reason, len(jobs[name]), name)
            yield PartVerdict(path=name, status=status, says=sentence)
        else:
            yield PartVerdict(
                path=name, status=report.status, says=_with_reason(NOTHING, left_out[name].why), skipped=True
            )


def _of_job(report: RunReport, job: RunJobView) -> PartVerdict:
    status = RunStatus.FAILED if job.state == JobState.FAILED else _word_of([job], report.status)
    path = f"{job.workflow}/{_own_name(job, job.workflow)}" if job.workflow else job.name
    why = job.failure.error if job.failure is not None else job.reason.replace("_", " ")
    return PartVerdict(path=path, status=status, says=_with_reason(_SAYS[status], why))


def _word_of(jobs: Iterable[RunJobView], of_run: RunStatus) -> RunStatus:
    """Return the status of some jobs, given that of their run."""
    needed = [job.state for job in jobs if job.required]
    if JobState.FAILED in needed:
        return RunStatus.FAILED
    if all(state == JobState.COMPLETED for state in needed):
        ended = of_run.final or all(job.state in _ENDED for job in jobs)
        return RunStatus.SUCCESS if ended else of_run
    if not of_run.final:
        return of_run
    return RunStatus.TIMEOUT if of_run is RunStatus.TIMEOUT else RunStatus.CANCELED


def _in_words(
    status: RunStatus, broken: list[RunJobView], reason: str, total: int, workflow: str = ""
) -> str:
    if broken and status is not RunStatus.SUCCESS:
        names = ", ".join(_own_name(job, workflow) for job in broken[:3])
        more = f" and {len(broken) - 3} more" if len(broken) > 3 else ""
        return _with_reason(_SAYS[status], names + more)
    if reason and status not in (RunStatus.SUCCESS, RunStatus.TIMEOUT):
        return _with_reason(_SAYS[status], reason.replace("_", " "))
    return _with_reason(_SAYS[status], f"{total} job{'s' if total != 1 else ''}" if total else "")


def _own_name(job: RunJobView, workflow: str) -> str:
    return job.name.removeprefix(f"{workflow} / ") if workflow else job.name


def _with_reason(sentence: str, why: str) -> str:
    """Return the text and its reason in one line.

    A status has no room for more.
    """
    return " ".join(f"{sentence}: {why}".split()) if why.strip() else sentence
