"""Reports of success about jobs that were granted together: they are decided once.

Jobs of a run are committed with the progress of their run where that is known; else with a message to it.

Why: decisions 0442 and 0535.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec

from interlock.engine.unit_of_work import Engine
from interlock.errors import InterlockError
from interlock.store.records import (
    Change,
    Commit,
    Committed,
    Conflict,
    Outcome,
    Record,
    Work,
    record_after,
)
from interlock.systems.orchestrator.body import JobBody
from interlock.systems.orchestrator.grants import (
    Offer,
)
from interlock.systems.orchestrator.notifications import (
    JobChanged,
    JobsChanged,
    RunsNotified,
    change_of_all,
)
from interlock.systems.orchestrator.runner_messages import (
    Report,
    SharedDecision,
    decide_completions,
)
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.shapes import Shape, of_any_run, shape_of
from interlock.systems.orchestrator.tokens import read_token
from interlock.wire.runner import Answer


class HeldJob(msgspec.Struct, frozen=True, gc=False):
    """The latest written record of a job. After a grant it is made when needed, which for most is never."""

    before: Record
    """The record, or with an offer the one before it."""
    token: str = ""
    """The token of the last grant; empty if it was made elsewhere."""
    offer: Offer | None = None
    """The offer of the grant, until another message about the job."""
    at: datetime | None = None
    """The time of the offer's commit."""

    @property
    def record(self) -> Record:
        """The record as it was written."""
        if self.offer is None or self.at is None:
            return self.before
        return record_after(self.offer.change, self.before, self.at)

    def body_of(self, record: Record | None) -> JobBody | None:
        """Return the decoded body of a record, if it is this one."""
        offer = self.offer
        if offer is None or record is None or record.updated_at != self.at:
            return None
        return offer.body if record.version == offer.change.expected + 1 else None


class SuccessReport(NamedTuple):
    """A report of success that can be processed with others."""

    place: int
    held: HeldJob
    result: bytes


class _JointSuccesses:
    """Reports of success that are decided once, of at most one run."""

    __slots__ = ("before", "decision", "results", "seen", "some")

    def __init__(self, decision: SharedDecision, some: list[SuccessReport]) -> None:
        self.decision: SharedDecision = decision
        self.some: list[SuccessReport] = some
        self.before: list[Record] = [held.before for _, held, _ in some]
        """The jobs as they were before they were granted."""
        self.seen: list[datetime] = [held.at for _, held, _ in some if held.at is not None]
        """The time at which each was granted."""
        self.results: list[bytes] = [result for _, _, result in some]

    @property
    def run_id(self) -> str | None:
        """The run whose jobs they are; None if they belong to none."""
        return None if self.decision.to_run is None else self.before[0].parent

    @property
    def ended(self) -> JobChanged | JobsChanged:
        """The change for the run."""
        assert self.decision.to_run is not None
        return change_of_all(self.decision.to_run, self.before)

    def work(self, now: datetime) -> Work:
        """Return the work to commit; with a message to the run."""
        return self.decision.work(self.before, self.seen, self.results, now)

    def changes(self) -> list[Change]:
        """Return the changes of the jobs."""
        return self.decision.changes(self.before, self.seen, self.results)


class RunSteps(msgspec.Struct):
    """Steps of runs that are committed with those of their jobs."""

    changes: Mapping[str, Sequence[Change]]
    """The changes by run; a run that is missing gets a message."""
    outcomes: dict[str, Outcome | InterlockError]
    """The outcomes of their commits, once they are known."""


class RunProgress(Protocol):
    """Decides about runs in the commit in which their jobs end."""

    def steps(
        self, ended: Mapping[str, Sequence[JobChanged | JobsChanged]], now: datetime, commit_id: str
    ) -> AbstractAsyncContextManager[RunSteps]:
        """Decide about runs whose jobs have ended; then note the outcomes."""
        ...


def _commit_of_run(some: Sequence[_JointSuccesses], changes: Sequence[Change]) -> Commit:
    """Return the commit of jobs of a run and of its progress."""
    limits = [each.decision.not_after for each in some if each.decision.not_after is not None]
    jobs = [change for each in some for change in each.changes()]
    return Commit(changes=(*jobs, *changes), not_after=min(limits, default=None))


class JointReports:
    """Decides and commits reports that say the same."""

    def __init__(
        self,
        engine: Engine,
        settings: OrchestratorSettings,
        news: dict[type, None],
        progress: RunProgress | None = None,
    ) -> None:
        """Decide about reports of equal jobs together.

        `news` has the events to publish about messages to other records that were committed.
        """
        self._engine = engine
        self._news = news
        self._settings = settings
        self.progress = progress
        """Commits the progress of runs with their jobs; without it they get messages."""

    async def commit(
        self, grouped: Mapping[Report, list[SuccessReport]], answers: list[Answer | None]
    ) -> None:
        """Commit reports, and note the answers of those that were committed."""
        now, commit_id = await self._engine.clock.now(), self._engine.commit_id()
        decisions = self._decided(grouped, now, commit_id)
        by_run: dict[str, list[_JointSuccesses]] = {}
        if self.progress is not None:
            for each in decisions:
                if (run_id := each.run_id) is not None:
                    by_run.setdefault(run_id, []).append(each)
        if by_run:
            decisions = await self._commit_with_runs(decisions, by_run, answers, now, commit_id)
        await self._commit_together(decisions, answers, now)

    def _decided(
        self, grouped: Mapping[Report, list[SuccessReport]], now: datetime, commit_id: str
    ) -> list[_JointSuccesses]:
        """Return the decisions about equal reports.

        Those that depend on the job are left out.
        """
        decisions: list[_JointSuccesses] = []
        known: dict[Shape, SharedDecision | None] = {}
        for report, some in grouped.items():
            first = some[0].held
            token = read_token(first.token)
            assert token is not None, "it was made by this process"
            like = of_any_run(first.record)
            shape = (report.runner_id, report.cost, token.shard, token.index, *shape_of(like))
            if shape not in known:
                known[shape] = decide_completions(report, token, like, now, commit_id, self._settings)
            decided = known[shape]
            if decided is not None:
                decisions.append(_JointSuccesses(decided, some))
        return decisions

    async def _commit_together(
        self,
        decisions: Sequence[_JointSuccesses],
        answers: list[Answer | None],
        now: datetime,
        beside: Sequence[Commit] = (),
    ) -> list[Outcome | InterlockError]:
        """Commit decisions, and note the answers of those that were.

        Return the outcomes of `beside`, which are committed with them.
        """
        work: list[Work] = [each.work(now) for each in decisions]
        outcomes = iter(await self._engine.committer.commit_all([*work, *beside]))
        for item, each in zip(work, decisions, strict=True):
            shared = next(outcomes) if isinstance(item, Commit) else None
            if isinstance(shared, Committed):
                self._news[RunsNotified] = None
            for place, _, _ in each.some:
                outcome = next(outcomes) if shared is None else shared
                if isinstance(outcome, Committed):
                    answers[place] = each.decision.answer
        return list(outcomes)

    async def _commit_with_runs(
        self,
        decisions: Sequence[_JointSuccesses],
        by_run: Mapping[str, Sequence[_JointSuccesses]],
        answers: list[Answer | None],
        now: datetime,
        commit_id: str,
    ) -> list[_JointSuccesses]:
        """Commit decisions, those about jobs of runs with their progress.

        Return those about jobs of runs that have changed meanwhile: their jobs send them messages.
        """
        assert self.progress is not None
        ended = {run_id: [each.ended for each in some] for run_id, some in by_run.items()}
        again: list[_JointSuccesses] = []
        async with self.progress.steps(ended, now, commit_id) as steps:
            rest = [each for each in decisions if each.run_id not in steps.changes]
            commits = [_commit_of_run(by_run[run_id], changes) for run_id, changes in steps.changes.items()]
            outcomes = await self._commit_together(rest, answers, now, commits)
            for run_id, outcome in zip(steps.changes, outcomes, strict=True):
                steps.outcomes[run_id] = outcome
                if isinstance(outcome, Committed):
                    for each in by_run[run_id]:
                        for place, _, _ in each.some:
                            answers[place] = each.decision.answer
                elif isinstance(outcome, Conflict):
                    own = {record.id for each in by_run[run_id] for record in each.before}
                    again += () if outcome.key.id in own else by_run[run_id]
        return again
