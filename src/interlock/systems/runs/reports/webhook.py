"""Signed webhooks (Standard Webhooks) to an address that a user has named.

POST <url>
webhook-id: r_0123456789ab.failed          the same for every repeat
webhook-timestamp: 1769860800
webhook-signature: v1,<base64>             one for each key

{"type": "run.failed", "timestamp": "2026-01-31T12:00:00Z", "data": {…}}
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from fnmatch import fnmatchcase

import msgspec

from interlock.systems.runs.reports.outbound_http import HttpAnswer, OutboundHttp
from interlock.systems.runs.reports.report import DeliveryFailed, ReadTime, RunReport, RunStatus
from interlock.systems.runs.reports.summary import (
    MAX_ERROR,
    MAX_FAILED,
    failed_jobs,
    in_words,
    shortened,
)
from interlock.systems.runs.settings import WebhookReporting
from interlock.systems.runs.webhook_security import standard_headers
from interlock.wire.runs import RunView, Source

MAX_WAIT_S = 86_400.0
_GONE = 410


class FailedJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that has failed."""

    name: str
    job_id: str
    required: bool = True
    failure_class: str = ""
    error: str = ""


class RunNews(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run in a webhook: small with any number of jobs."""

    run_id: str
    workflow: str
    state: str
    summary: str
    outcome: str | None = None
    reason: str = ""
    error: str = ""
    source: Source = Source()
    """The source, without the changed paths, which may be many."""
    labels: tuple[str, ...] = ()
    tally: dict[str, int] = {}
    failed_jobs: tuple[FailedJob, ...] = ()
    """The first failed jobs; `tally` has their number."""
    created_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    url: str = ""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a webhook."""

    type: str
    """run.pending, run.running, run.success, run.failed, run.canceled or run.timeout."""
    timestamp: datetime
    """Time at which the run reached this status; a repeat has the same."""
    data: RunNews


class WebhookReporter:
    """Reports to a webhook."""

    def __init__(
        self,
        settings: WebhookReporting,
        now: ReadTime,
        *,
        timeout_s: float = 10.0,
        outgoing: OutboundHttp | None = None,
    ) -> None:
        self.name: str = settings.name
        self._now = now
        self._settings = settings
        self._outgoing = outgoing or OutboundHttp(settings.allow, timeout_s=timeout_s)

    @property
    def able(self) -> bool:
        """Whether there is a key."""
        return bool(self._settings.keys)

    def wants(self, run: RunView, status: RunStatus) -> bool:
        """Return whether repository and status match the settings."""
        fits = fnmatchcase(run.source.repository.lower(), self._settings.repository.lower())
        return fits and status in self._settings.words

    def replaces(self, newer: RunView, run: RunView) -> bool:  # noqa: ARG002 - each run has messages of its own
        """Return False: each message names its run."""
        return False

    async def deliver(self, report: RunReport, memory: str) -> str:
        """Send the message, with a new signature for each try."""
        body = msgspec.json.encode(notice_of(report))
        now = await self._now()
        headers = {
            **standard_headers(self._settings.keys, report.id, now, body),
            "Content-Type": "application/json",
            "User-Agent": "interlock",
        }
        answer = await self._outgoing.request("POST", self._settings.url, headers, body)
        if not 200 <= answer.status < 300:
            raise refusal_of(answer, now)
        return memory

    async def close(self) -> None:
        """Close all connections."""
        await self._outgoing.close()


def notice_of(report: RunReport) -> Notice:
    """Return the message for a report."""
    run, status = report.run, report.status
    broken = failed_jobs(run)[:MAX_FAILED]
    return Notice(
        type=f"run.{status}",
        timestamp=report.at,
        data=RunNews(
            run_id=run.id,
            workflow=run.workflow,
            state=run.state,
            summary=shortened(in_words(report), MAX_ERROR),
            outcome=run.outcome,
            reason=run.reason,
            error=run.error[:MAX_ERROR],
            source=msgspec.structs.replace(run.source, changed_paths=None),
            labels=run.labels,
            tally=run.tally,
            failed_jobs=tuple(
                FailedJob(
                    name=job.name,
                    job_id=job.job_id,
                    required=job.required,
                    failure_class=job.failure.failure_class if job.failure else "",
                    error=job.failure.error[:MAX_ERROR] if job.failure else "",
                )
                for job in broken
            ),
            created_at=run.created_at,
            started_at=run.started_at,
            completed_at=run.completed_at,
            url=report.url,
        ),
    )


def refusal_of(answer: HttpAnswer, now: datetime) -> DeliveryFailed:
    """Return the error for a bad response, with the time of the next try."""
    status = answer.status
    if 300 <= status < 400:
        return DeliveryFailed(
            f"the receiver answered {status}, and redirects are not followed: name the new address"
        )
    sentence = f"the receiver answered {status}"
    return DeliveryFailed(sentence, after_s=_retry_after(answer, now), never=status == _GONE)


def _retry_after(answer: HttpAnswer, now: datetime) -> float | None:
    """Return the Retry-After in seconds, at most a day."""
    text = answer.headers.get("retry-after", "")
    if text.isascii() and text.isdecimal():
        return min(float(text[:9]), MAX_WAIT_S)
    try:
        at = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    wait_s = (at if at.tzinfo else at.replace(tzinfo=UTC)) - now
    return min(max(wait_s.total_seconds(), 0.0), MAX_WAIT_S)
