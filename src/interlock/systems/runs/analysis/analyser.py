"""What ties findings to runs: outcomes are learnt once, findings are made when somebody asks.

Nothing here decides anything. Learning has a message of its own, written in the commit that follows an
outcome, so that neither the run nor its reports wait for it; findings are worked out from what the jobs
and their histories say at that moment, and are not stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec

from interlock.engine.unit_of_work import Decision, Engine
from interlock.errors import UnknownRun
from interlock.lifecycles.job import JOB
from interlock.lifecycles.run import SETTLED
from interlock.store.records import Commit, Committed, Key, Query, Record
from interlock.systems.orchestrator.body import decode_body
from interlock.systems.runs.analysis.classifier import Finding, finding_of, in_words
from interlock.systems.runs.analysis.history import (
    FLAKY,
    HISTORY,
    Ended,
    Named,
    body_of,
    ended_of,
    forgotten,
    labels_of,
    learnt,
    outcomes_in_words,
)
from interlock.systems.runs.analysis.signs import SIGNS, Sign
from interlock.systems.runs.commits import About
from interlock.wire.runs import RunExplanation, RunJobView, RunView

AT_ONCE = 200
MAX_FINDINGS = 100
MAX_WORDS = 10
MAX_LOOKED_AT = 500


class FlakyJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that has passed and failed on one commit."""

    repository: str
    workflow: str
    job: str
    commits: int
    """On how many of the latest commits it has ended."""
    contradicted: int
    """On how many of them it has passed and failed."""
    latest_sha: str
    """The latest of those."""
    latest: str
    """What happened there."""
    updated_at: datetime


class RunAnalysis(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody should know about a run that has not gone well."""

    run_id: str
    findings: tuple[Finding, ...] = ()
    """Of the jobs that have failed, in the order of the plan; at most a hundred."""
    more: int = 0
    """How many failed jobs are left out."""
    flaky: tuple[FlakyJob, ...] = ()
    """Its jobs that have passed and failed on one commit lately, also those that have passed here."""


class FlakyJobs(msgspec.Struct, frozen=True, kw_only=True):
    """Some of them; `cursor` goes on after them and is empty at the end."""

    jobs: tuple[FlakyJob, ...]
    cursor: str = ""


class Analysing:
    """Looks at runs when they have ended."""

    def __init__(
        self, engine: Engine, view: Callable[[str], Awaitable[RunView]], signs: Sequence[Sign] = SIGNS
    ) -> None:
        self._engine = engine
        self._view = view
        self._signs = tuple(signs)

    async def of(self, run_id: str) -> RunAnalysis:
        """What there is to say about the failed jobs of a run."""
        run = await self._view(run_id)
        findings, more = await self._findings(run)
        return RunAnalysis(run_id=run_id, findings=findings, more=more, flaky=await self._flaky_in(run))

    async def explained(self, told: RunExplanation) -> RunExplanation:
        """The same, with why its jobs have failed."""
        if told.state not in SETTLED:
            return told
        findings, _ = await self._findings(await self._view(told.run_id))
        return msgspec.structs.replace(told, findings=tuple(map(in_words, findings[:MAX_WORDS])))

    async def flaky(
        self, *, repository: str = "", workflow: str = "", cursor: str = "", limit: int = 100
    ) -> FlakyJobs:
        """Jobs that are flaky, of one repository or workflow or of all."""
        page = await self._engine.store.find(
            Query(
                kind=HISTORY.name,
                states=(FLAKY,),
                labels=labels_of(repository, workflow),
                cursor=cursor,
                limit=limit,
            )
        )
        return FlakyJobs(jobs=tuple(map(_flaky_job, page.records)), cursor=page.cursor)

    async def learn(self, payload: bytes) -> None:
        """How the jobs of a run have ended: the handler of the messages about it. Can be done twice."""
        try:
            run = await self._view(msgspec.json.decode(payload, type=About).run_id)
        except UnknownRun:
            return  # it was removed, with everything that could be learnt from it
        if not (run.source.repository and run.source.sha):
            return
        for start in range(0, len(run.jobs), AT_ONCE):
            await self._learn(run, run.jobs[start : start + AT_ONCE])

    async def sweep(self, *, limit: int = 100) -> int:
        """Forget what was not heard of for long."""

        def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
            return [Commit(changes=(forgotten(record, now),)) for record in records]

        outcomes = await self._engine.due([HISTORY.name], limit, decide)
        return sum(isinstance(outcome, Committed) for outcome in outcomes)

    async def _learn(self, run: RunView, jobs: Sequence[RunJobView]) -> None:
        records = await self._engine.store.load([Key(JOB.name, job.job_id) for job in jobs])
        pairs = [(job, _ended(run.source.sha, record)) for job, record in zip(jobs, records, strict=True)]
        new = [(_named(run, job), ended) for job, ended in pairs if ended is not None]

        def decide(before: Sequence[Record | None], now: datetime) -> Decision[None]:
            found = [
                learnt(record, name, ended, now) for record, (name, ended) in zip(before, new, strict=True)
            ]
            changes = tuple(change for change in found if change is not None)
            return Decision(None, Commit(changes=changes) if changes else None)

        if new:
            await self._engine.apply([Key(HISTORY.name, name.id) for name, _ in new], decide)

    async def _findings(self, run: RunView) -> tuple[tuple[Finding, ...], int]:
        failed = [job for job in run.jobs if job.failure is not None]
        shown = failed[:MAX_FINDINGS]
        records = await self._histories(run, shown)
        findings = [
            finding_of(job, run.source.sha, body_of(record) if record else None, self._signs)
            for job, record in zip(shown, records, strict=True)
        ]
        return tuple(findings), len(failed) - len(shown)

    async def _flaky_in(self, run: RunView) -> tuple[FlakyJob, ...]:
        """Return the flaky jobs of a run; of a very large one only the first are looked at."""
        found = await self._histories(run, run.jobs[:MAX_LOOKED_AT])
        flaky = [_flaky_job(record) for record in found if record and record.state == FLAKY]
        return tuple(flaky[:MAX_FINDINGS])

    async def _histories(self, run: RunView, jobs: Sequence[RunJobView]) -> list[Record | None]:
        if not run.source.repository or not jobs:
            return [None] * len(jobs)
        return list(await self._engine.store.load([Key(HISTORY.name, _named(run, job).id) for job in jobs]))


def _named(run: RunView, job: RunJobView) -> Named:
    return Named(run.source.repository, run.workflow, job.name)


def _ended(sha: str, record: Record | None) -> Ended | None:
    return ended_of(sha, record.id, record.state, decode_body(record.body)) if record else None


def _flaky_job(record: Record) -> FlakyJob:
    body = body_of(record)
    contradictions = body.contradictions()
    sha = next(iter(contradictions), "")
    return FlakyJob(
        repository=body.named.repository,
        workflow=body.named.workflow,
        job=body.named.job,
        commits=body.commits(),
        contradicted=len(contradictions),
        latest_sha=sha,
        latest=outcomes_in_words(contradictions.get(sha, ())),
        updated_at=record.updated_at,
    )
