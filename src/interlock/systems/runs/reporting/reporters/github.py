"""GitHub: a commit status, or a check run, for the commit that a run is about.

    POST /repos/{owner}/{repo}/statuses/{sha}      state, context, description, target_url
    POST /repos/{owner}/{repo}/check-runs          and PATCH …/check-runs/{id} for the same one later

A status may be told twice, the newest counts. A check run is made once: its number is remembered, and
where an answer was lost the one that carries the id of the run is looked for. Both as documented at
https://docs.github.com/rest/commits/statuses and https://docs.github.com/rest/checks/runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote

import msgspec

from interlock.systems.runs.reporting.outgoing import Answered, Outgoing
from interlock.systems.runs.reporting.port import NotTold, Now, Report, Word
from interlock.systems.runs.reporting.reporters.summary import MAX_ERROR, MAX_FAILED, failed_jobs, in_words
from interlock.systems.runs.reporting.settings import GithubReporting
from interlock.wire.runs import RunView

MAX_DESCRIPTION = 140
SECONDARY_LIMIT_S = 60.0
"""What GitHub asks for where it does not say how long to wait."""

STATES = {
    Word.AWAITING_APPROVAL: "pending",
    Word.PENDING: "pending",
    Word.RUNNING: "pending",
    Word.SUCCESS: "success",
    Word.FAILED: "failure",
    Word.TIMEOUT: "failure",
    Word.CANCELED: "error",
}
CONCLUSIONS = {
    Word.SUCCESS: "success",
    Word.FAILED: "failure",
    Word.TIMEOUT: "timed_out",
    Word.CANCELED: "cancelled",
}

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NEVER = frozenset({400, 410, 413, 422})
"""What stays so however often it is asked; a wrong token, a missing right or a repository that is not
there can be put right by somebody."""


class GithubReporter:
    """Tells GitHub."""

    def __init__(self, settings: GithubReporting, now: Now, *, timeout_s: float = 10.0) -> None:
        self.name, self._now = settings.name, now
        self._settings = settings
        self._outgoing = Outgoing(None, timeout_s=timeout_s)  # whose address only the operator names

    @property
    def able(self) -> bool:
        """With a token."""
        return self._settings.token is not None

    def wants(self, run: RunView, word: Word) -> bool:  # noqa: ARG002 - every word is a state there
        """Runs about a commit of a repository there."""
        source = run.source
        return (
            _REPOSITORY.fullmatch(source.repository) is not None
            and _SHA.fullmatch(source.sha) is not None
            and fnmatchcase(source.repository.lower(), self._settings.repository.lower())
        )

    async def tell(self, report: Report, memory: str) -> str:
        """Make the status or the check; returns the number of the check."""
        if self._settings.check:
            return await self._check(report, memory)
        source = report.run.source
        await self._asked("POST", f"/repos/{source.repository}/statuses/{source.sha}", self._status(report))
        return memory

    async def close(self) -> None:
        """Let go of every connection."""
        await self._outgoing.close()

    def _status(self, report: Report) -> dict[str, Any]:
        said = {
            "state": STATES[report.word],
            "context": self._context(report.run),
            "description": in_words(report, MAX_DESCRIPTION),
        }
        return {**said, "target_url": report.url} if report.url else said

    async def _check(self, report: Report, memory: str) -> str:
        run, path = report.run, f"/repos/{report.run.source.repository}/check-runs"
        number = memory or await self._earlier(run)
        if number:
            await self._asked("PATCH", f"{path}/{number}", self._check_run(report))
            return number
        made = await self._asked("POST", path, {**self._check_run(report), "head_sha": run.source.sha})
        return str(made.get("id", ""))

    async def _earlier(self, run: RunView) -> str:
        """The check of this run that exists, when the answer to its making was lost."""
        name = quote(self._context(run), safe="")
        path = f"/repos/{run.source.repository}/commits/{run.source.sha}/check-runs?check_name={name}"
        found = (await self._asked("GET", path)).get("check_runs", [])
        mine = [one for one in found if isinstance(one, dict) and one.get("external_id") == run.id]
        return str(mine[0].get("id", "")) if mine else ""

    def _check_run(self, report: Report) -> dict[str, Any]:
        run, word = report.run, report.word
        said: dict[str, Any] = {
            "name": self._context(run),
            "external_id": run.id,
            "status": "completed" if word.final else "in_progress" if word is Word.RUNNING else "queued",
            "output": {"title": in_words(report, MAX_DESCRIPTION), "summary": _summary(run)},
        }
        if run.started_at is not None:
            said["started_at"] = _instant(run.started_at)
        if word.final:
            said["conclusion"] = CONCLUSIONS[word]
            said["completed_at"] = _instant(run.completed_at or report.at)
        return {**said, "details_url": report.url} if report.url else said

    def _context(self, run: RunView) -> str:
        return self._settings.context.replace("{workflow}", run.workflow or run.planner)[:100]

    async def _asked(self, method: str, path: str, said: dict[str, Any] | None = None) -> dict[str, Any]:
        token = self._settings.token
        if token is None:
            raise NotTold("there is no token for GitHub")
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {token.reveal().decode()}",
            "Content-Type": "application/json",
            "User-Agent": "interlock",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        body = msgspec.json.encode(said) if said is not None else b""
        url = self._settings.api.rstrip("/") + path
        answer = await self._outgoing.request(method, url, headers, body)
        if answer.status not in (200, 201):
            raise refusal_of(answer, await self._now())
        return _object(answer.body)


def refusal_of(answer: Answered, now: datetime) -> NotTold:
    """What an answer that is no success means for the next try."""
    message = str(_object(answer.body).get("message", ""))[:200]
    said = f"GitHub answered {answer.status}" + (f": {message}" if message else "")
    wait_s = _rate_limited(answer, message, now)
    if wait_s is not None:
        return NotTold(said, after_s=wait_s, for_all=True)
    return NotTold(said, never=answer.status in _NEVER)


def _rate_limited(answer: Answered, message: str, now: datetime) -> float | None:
    """How long GitHub wants to be left alone; None when that is not the matter."""
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


def _summary(run: RunView) -> str:
    """The failed jobs as Markdown that nobody's output can break out of."""
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
