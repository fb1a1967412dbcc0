"""A run in a few words, and its failed jobs."""

from __future__ import annotations

from interlock.systems.runs.reporting.port import Report, Word
from interlock.wire.runs import RunJobView, RunView

MAX_FAILED = 20
MAX_ERROR = 300

_SAYS = {
    Word.AWAITING_APPROVAL: "Waiting for approval",
    Word.PENDING: "Waiting for runners",
    Word.RUNNING: "Running",
    Word.SUCCESS: "Succeeded",
    Word.FAILED: "Failed",
    Word.CANCELED: "Canceled",
    Word.TIMEOUT: "Timed out",
}


def in_words(report: Report, most: int) -> str:
    """What happened, why, and how many jobs were involved; with at most so many characters."""
    run = report.run
    said = _SAYS[report.word]
    if run.error:
        said += f": {run.error}"
    elif broken := failed_jobs(run):
        names = ", ".join(job.name for job in broken[:3])
        said += f": {names}" + (f" and {len(broken) - 3} more" if len(broken) > 3 else "")
    elif run.reason and report.word is not Word.SUCCESS:
        said += f": {run.reason.replace('_', ' ')}"
    elif total := sum(run.tally.values()):
        said += f": {total} job{'s' if total != 1 else ''}"
    return said if len(said) <= most else f"{said[: most - 1]}…"


def failed_jobs(run: RunView) -> list[RunJobView]:
    """Those that have failed, in the order of the plan."""
    return [job for job in run.jobs if job.failure is not None]
