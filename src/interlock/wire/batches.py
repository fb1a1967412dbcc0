"""Batches of jobs: their parts, and how they are shown."""

from __future__ import annotations

from datetime import datetime

import msgspec

from interlock.wire.jobs import AfterEnd, JobSpec
from interlock.wire.views import View

MAX_BATCH = 100_000
"""Maximum number of jobs in a batch."""


class BatchSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A batch to create."""

    description: str = ""
    callback: JobSpec | None = None
    """Job that is submitted when all jobs of the batch have ended."""
    on: AfterEnd = "end"
    """End of the batch after which the callback is submitted: any `end`, or only if all are a `success`."""
    into: str = ""
    """Argument of the callback that gets the counts: id, total, completed, failed and canceled."""


class BatchCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Number of jobs of a batch, and of those that have ended by outcome."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    canceled: int = 0

    @property
    def ended(self) -> int:
        """Number of jobs that have ended."""
        return self.completed + self.failed + self.canceled

    def plus(self, other: BatchCounts) -> BatchCounts:
        """Return the sum of both."""
        return BatchCounts(
            total=self.total + other.total,
            completed=self.completed + other.completed,
            failed=self.failed + other.failed,
            canceled=self.canceled + other.canceled,
        )


class BatchView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A batch of jobs and its progress."""

    id: str
    state: str
    """OPEN while jobs are added, RUNNING, STOPPING after a cancel, then ENDED or CANCELED."""
    created_at: datetime
    updated_at: datetime
    counts: BatchCounts
    description: str = ""
    callback: str = ""
    """Task that is submitted when all jobs have ended."""
    callback_job_id: str | None = None
    """Job of the callback, once it was submitted."""
    by: str = ""
    """Principal that created it."""
    reason: str = ""
    """Reason of the cancel."""


class BatchList(msgspec.Struct, frozen=True, kw_only=True):
    """Batches, newest first. `cursor` is for the next page, and is empty at the end.

    In a list the counts of a batch of more than 2,000 jobs may be some hundred jobs behind.
    """

    batches: tuple[BatchView, ...]
    cursor: str = ""


class BatchJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job of a batch."""

    id: str
    state: str = ""
    """COMPLETED, FAILED or CANCELED; empty while it has not ended."""


class BatchJobs(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of a batch in the order of their submission. `cursor` is for the next page."""

    jobs: tuple[BatchJob, ...]
    cursor: str = ""


class BatchAddition(msgspec.Struct, frozen=True, kw_only=True):
    """Ids of jobs that were added to a batch, in their order."""

    batch_id: str
    ids: tuple[str, ...]
