"""GitHub: a commit status, or a check run, for the commit of a run.

    POST /repos/{owner}/{repo}/statuses/{sha}      state, context, description, target_url
    POST /repos/{owner}/{repo}/check-runs          and PATCH …/check-runs/{id} for the same one later

A status may be sent twice, the newest counts. A check run is created once: its number is stored, and after a
lost response the check run with the id of the run is searched. Both as documented at
https://docs.github.com/rest/commits/statuses and https://docs.github.com/rest/checks/runs.

An empty run has no status: GitHub has no neutral one, and a success would claim a check that did not happen.
Its check run is `skipped`.

Why: decisions 0330 and 0371.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote

import msgspec

from interlock.systems.runs.reports.outbound_http import HttpAnswer, OutboundHttp
from interlock.systems.runs.reports.report import DeliveryFailed, ReadTime, RunReport, RunStatus
from interlock.systems.runs.reports.summary import (
    MAX_ERROR,
    MAX_FAILED,
    PartVerdict,
    failed_jobs,
    is_empty,
    parts_of,
    shortened,
)
from interlock.systems.runs.settings import GithubReporting
from interlock.wire.runs import RunView

MAX_DESCRIPTION = 140
MAX_CONTEXT = 100
AT_ONCE = 4
"""Number of statuses of one run sent concurrently."""
SECONDARY_LIMIT_S = 60.0
"""Pause that GitHub recommends if it names none."""

STATES = {
    RunStatus.AWAITING_APPROVAL: "pending",
    RunStatus.PENDING: "pending",
    RunStatus.RUNNING: "pending",
    RunStatus.SUCCESS: "success",
    RunStatus.FAILED: "failure",
    RunStatus.TIMEOUT: "failure",
    RunStatus.CANCELED: "error",
}
CONCLUSIONS = {
    RunStatus.SUCCESS: "success",
    RunStatus.FAILED: "failure",
    RunStatus.TIMEOUT: "timed_out",
    RunStatus.CANCELED: "cancelled",
}

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NEVER = frozenset({400, 410, 413, 422})
"""Permanent failures. A wrong token, a missing permission or a missing repository can be corrected, so those
are retried.
"""


class GithubReporter:
    """Reports to GitHub."""

    def __init__(self, settings: GithubReporting, now: ReadTime, *, timeout_s: float = 10.0) -> None:
        self.name: str = settings.name
        self._now = now
        self._settings = settings
        self._outgoing = OutboundHttp(None, timeout_s=timeout_s)  # its address comes only from the operator

    @property
    def able(self) -> bool:
        """Whether there is a token."""
        return self._settings.token is not None

    def wants(self, run: RunView, status: RunStatus) -> bool:  # noqa: ARG002 - every status is a state there
        """Return whether the run is about a commit on GitHub, and not empty.

        A run that needed an approval was reported as pending, so its end is reported in any case.
        """
        source = run.source
        if is_empty(run) and not self._settings.check and not run.approvals:
            return False
        return (
            _REPOSITORY.fullmatch(source.repository) is not None
            and _SHA.fullmatch(source.sha) is not None
            and fnmatchcase(source.repository.lower(), self._settings.repository.lower())
        )

    def replaces(self, newer: RunView, run: RunView) -> bool:
        """Return whether both runs share a status of the same commit.

        A check belongs to one run.
        """
        one, other = newer.source, run.source
        same = (one.repository, one.sha) == (other.repository, other.sha)
        own = PartVerdict(status=RunStatus.PENDING, says="")
        return same and not self._settings.check and self._context(newer, own) == self._context(run, own)

    async def deliver(self, report: RunReport, memory: str) -> str:
        """Create or update the status or check; return the number of the check."""
        *parts, own = parts_of(report, self._settings.statuses)
        if self._settings.check:
            numbers = _numbers(memory)
            for part in (*parts, own):
                numbers[part.path] = await self._check(report, part, numbers.get(part.path, ""))
            return _memory(numbers)
        turn = asyncio.Semaphore(AT_ONCE)
        sent = [self._deliver_status(report, part, turn) for part in parts if not part.skipped]
        for failure in await asyncio.gather(*sent, return_exceptions=True):
            if failure is not None:
                raise failure
        await self._deliver_status(report, own, turn)
        return memory

    async def close(self) -> None:
        """Close all connections."""
        await self._outgoing.close()

    async def _deliver_status(self, report: RunReport, part: PartVerdict, turn: asyncio.Semaphore) -> None:
        source = report.run.source
        async with turn:
            status = self._status(report, part)
            await self._call("POST", f"/repos/{source.repository}/statuses/{source.sha}", status)

    def _status(self, report: RunReport, part: PartVerdict) -> dict[str, Any]:
        fields = {
            "state": STATES[part.status],
            "context": self._context(report.run, part),
            "description": shortened(part.says, MAX_DESCRIPTION),
        }
        return {**fields, "target_url": report.url} if report.url else fields

    async def _check(self, report: RunReport, part: PartVerdict, number: str) -> str:
        run, path = report.run, f"/repos/{report.run.source.repository}/check-runs"
        number = number or await self._earlier(run, part)
        if number:
            await self._call("PATCH", f"{path}/{number}", self._check_run(report, part))
            return number
        made = await self._call("POST", path, {**self._check_run(report, part), "head_sha": run.source.sha})
        return str(made.get("id", ""))

    async def _earlier(self, run: RunView, part: PartVerdict) -> str:
        """Return the existing check of this run.

        The response to its creation may have been lost.
        """
        name = quote(self._context(run, part), safe="")
        path = f"/repos/{run.source.repository}/commits/{run.source.sha}/check-runs?check_name={name}"
        found = (await self._call("GET", path)).get("check_runs", [])
        mine = [one for one in found if isinstance(one, dict) and one.get("external_id") == run.id]
        return str(mine[0].get("id", "")) if mine else ""

    def _check_run(self, report: RunReport, part: PartVerdict) -> dict[str, Any]:
        run, status = report.run, part.status
        fields: dict[str, Any] = {
            "name": self._context(run, part),
            "external_id": run.id,
            "status": "completed"
            if status.final
            else "in_progress"
            if status is RunStatus.RUNNING
            else "queued",
            "output": {"title": shortened(part.says, MAX_DESCRIPTION), "summary": _summary(run)},
        }
        if run.started_at is not None:
            fields["started_at"] = _instant(run.started_at)
        if status.final:
            fields["conclusion"] = "skipped" if part.skipped else CONCLUSIONS[status]
            fields["completed_at"] = _instant(run.completed_at or report.at)
        return {**fields, "details_url": report.url} if report.url else fields

    def _context(self, run: RunView, part: PartVerdict) -> str:
        context = self._settings.context.replace("{workflow}", run.workflow or run.planner)
        context = context.replace("{event}", run.source.event)
        if not part.path:
            return context[:MAX_CONTEXT]
        whole = f"{context}/{part.path}"
        if len(whole) <= MAX_CONTEXT:
            return whole
        digest = hashlib.sha256(whole.encode()).hexdigest()[:8]  # two long names must stay distinct
        return f"{whole[: MAX_CONTEXT - 9]}~{digest}"

    async def _call(self, method: str, path: str, fields: dict[str, Any] | None = None) -> dict[str, Any]:
        token = self._settings.token
        if token is None:
            raise DeliveryFailed("there is no token for GitHub")
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {token.reveal().decode()}",
            "Content-Type": "application/json",
            "User-Agent": "interlock",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        body = msgspec.json.encode(fields) if fields is not None else b""
        url = self._settings.api.rstrip("/") + path
        answer = await self._outgoing.request(method, url, headers, body)
        if answer.status not in (200, 201):
            raise refusal_of(answer, await self._now())
        return _object(answer.body)


def refusal_of(answer: HttpAnswer, now: datetime) -> DeliveryFailed:
    """Return the error for a bad response, with the time of the next try."""
    message = str(_object(answer.body).get("message", ""))[:200]
    sentence = f"GitHub answered {answer.status}" + (f": {message}" if message else "")
    wait_s = _rate_limited(answer, message, now)
    if wait_s is not None:
        return DeliveryFailed(sentence, after_s=wait_s, for_all=True)
    return DeliveryFailed(sentence, never=answer.status in _NEVER)


def _rate_limited(answer: HttpAnswer, message: str, now: datetime) -> float | None:
    """Return the pause that GitHub requests; None if it is not rate-limited."""
    headers: Mapping[str, str] = answer.headers
    if answer.status not in (403, 429, 503):
        return None
    if (after := headers.get("retry-after", "")).isdecimal():
        return float(after)
    reset = headers.get("x-ratelimit-reset", "")
    if headers.get("x-ratelimit-remaining") == "0" and reset.isdecimal():
        return max(float(reset) - now.timestamp(), 1.0)
    limited = answer.status == 429 or "rate limit" in message.lower()
    return SECONDARY_LIMIT_S if limited else None


def _numbers(memory: str) -> dict[str, str]:
    """Return the numbers of checks by part.

    A single number is that of the run.
    """
    if not memory.startswith("{"):
        return {"": memory} if memory else {}
    return msgspec.json.decode(memory, type=dict[str, str])


def _memory(numbers: Mapping[str, str]) -> str:
    return numbers[""] if numbers.keys() == {""} else msgspec.json.encode(numbers).decode()


def _summary(run: RunView) -> str:
    """Return the failed jobs as Markdown, with their output escaped."""
    broken = failed_jobs(run)
    lines = [f"Run `{run.id}`: " + ", ".join(f"{number} {name}" for name, number in run.tally.items())]
    for job in broken[:MAX_FAILED]:
        error = job.failure.error if job.failure is not None else ""
        lines.append(f"- {_plain(job.name)}: {_plain(error)[:MAX_ERROR]}")
    if len(broken) > MAX_FAILED:
        lines.append(f"- and {len(broken) - MAX_FAILED} more")
    return "\n".join(lines)


def _plain(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>()#+!|@~-])", r"\\\1", " ".join(text.split()))


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
