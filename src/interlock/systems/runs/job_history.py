"""The history of a job: its outcomes on the latest commits, and whether it is flaky.

A job is flaky if it has both passed and failed on one commit: in two runs, or in one run whose first
attempt failed. Failures with another cause (a lost worker, a full disk) do not count. Each job of each
workflow of each repository has one small record with the latest outcomes, so that no search is needed; it is
written once for each run that settles.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from interlock.engine.aggregate import Columns, RecordKind
from interlock.lifecycles import attempt, job
from interlock.machine import (
    STAY,
    Deadline,
    Event,
    Machine,
    Tone,
    command,
    consequence,
    end,
    ignore,
    on,
    state,
    timer,
)
from interlock.machine.cascade import EventRules
from interlock.store.records import Change, Record
from interlock.systems.orchestrator.body import JobBody
from interlock.systems.orchestrator.failures import FailureClass

OUTCOMES = 60
COMMITS = 20
"""Number of latest commits that are considered."""


class HistoryState(StrEnum):
    """The states of a job's history."""

    STEADY = "steady"
    FLAKY = "flaky"
    FORGOTTEN = "forgotten"


STEADY, FLAKY, FORGOTTEN = HistoryState.STEADY, HistoryState.FLAKY, HistoryState.FORGOTTEN

heard: Event = command("heard", "It has ended once more.", by="orchestrator")
contradicted: Event = command("contradicted", "It has passed and failed on one commit.", by="orchestrator")
calmed: Event = command(
    "calmed", "On none of the latest commits has it passed and failed.", by="orchestrator"
)
expire: Event = timer("expire", "It has not run for a long time.", by="clock")
forget: Event = consequence("forget", "Its history is no longer needed.", by="operator")

MEMORY = Deadline(expire, "job_history_s", 90 * 86_400.0, since="it last ended")

# fmt: off
HISTORY = Machine[HistoryState, None](
    "history",
    "How a job of a workflow has ended on the latest commits.",
    initial=STEADY,
    spine=(STEADY, FLAKY, FORGOTTEN),
    stop=(forget,),
    states=(
        state(STEADY, "It has passed and failed on none of the latest commits.",
              turn="orchestrator", within=MEMORY, tone=Tone.GOOD),
        state(FLAKY, "It has passed and failed on one of the latest commits.",
              turn="orchestrator", within=MEMORY, tone=Tone.BAD),
        end(FORGOTTEN, "There is no such job any more."),
    ),
    rows=(
        on(heard, (STEADY, FLAKY), STAY, owner="orchestrator", arms=MEMORY, why="Nothing has changed."),
        on(contradicted, STEADY, FLAKY, owner="orchestrator", arms=MEMORY,
           why="One commit cannot explain both outcomes."),
        on(calmed, FLAKY, STEADY, owner="orchestrator", arms=MEMORY, why="Its contradictions are old."),
        on(expire, (STEADY, FLAKY), FORGOTTEN, owner="clock", why="It was renamed or removed."),
        on(forget, (STEADY, FLAKY), FORGOTTEN, owner="operator", why="An operator has removed it."),
        ignore(contradicted, FLAKY, why="it is known to be flaky"),
        ignore(calmed, STEADY, why="it is steady"),
        ignore(expire, FORGOTTEN, why="it is forgotten"),
        ignore(forget, FORGOTTEN, why="it is forgotten"),
    ),
)
# fmt: on


class JobIdentity(msgspec.Struct, frozen=True):
    """The identity of a job across runs."""

    repository: str
    workflow: str
    job: str

    @property
    def id(self) -> str:
        """The id of its record."""
        return f"h_{_digest(self.repository.lower(), self.workflow, self.job)}"

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels by which its record is found."""
        return labels_of(self.repository, self.workflow)


class JobOutcome(msgspec.Struct, frozen=True, array_like=True):
    """One outcome of a job."""

    sha: str
    job_id: str
    passed: bool
    failed: bool
    """True together with `passed` if an earlier attempt failed."""


class HistoryBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored outcomes of a job."""

    named: JobIdentity
    ended: tuple[JobOutcome, ...] = ()
    """Outcomes, the latest last."""

    def contradictions(self) -> dict[str, tuple[JobOutcome, ...]]:
        """Return the latest commits on which it has passed and failed.

        All its outcomes there come with them.
        """
        by_commit: dict[str, list[JobOutcome]] = {}
        for one in reversed(self.ended):
            if one.sha in by_commit or len(by_commit) < COMMITS:
                by_commit.setdefault(one.sha, []).append(one)
        return {
            sha: tuple(outcomes)
            for sha, outcomes in by_commit.items()
            if any(o.passed for o in outcomes) and any(o.failed for o in outcomes)
        }

    def commits(self) -> int:
        """Return the number of latest commits on which it has ended."""
        return min(len({one.sha for one in self.ended}), COMMITS)


_OWN_FAULT = frozenset({FailureClass.USER, FailureClass.FLAKY, FailureClass.TIMEOUT})
_HISTORIES = RecordKind(
    HISTORY,
    HistoryBody,
    columns=lambda body: Columns(labels=body.named.labels),
    # Another outcome of the same kind is not journalled.
    events=EventRules(quiet=(heard,), sent=(forget,)),
)


def labels_of(repository: str = "", workflow: str = "") -> tuple[str, ...]:
    """Return the labels that find records of a repository or a workflow."""
    found = [f"repository.{_digest(repository.lower())[:20]}"] if repository else []
    found += [f"workflow.{_digest(workflow)[:20]}"] if workflow else []
    return tuple(sorted(found))


def body_of(record: Record) -> HistoryBody:
    """Return the body of a record."""
    return _HISTORIES.body_of(record)


def outcome_of(sha: str, job_id: str, record_state: str, body: JobBody) -> JobOutcome | None:
    """Return the outcome of a job; None if it does not reflect on the job."""
    passed = record_state == job.COMPLETED
    faults = [a.failure.failure_class for a in body.attempts if a.failure and a.state != attempt.SUCCEEDED]
    failed = any(fault in _OWN_FAULT for fault in faults) and record_state in (job.COMPLETED, job.FAILED)
    return JobOutcome(sha, job_id, passed, failed) if passed or failed else None


def with_outcome(before: Record | None, named: JobIdentity, new: JobOutcome, now: datetime) -> Change | None:
    """Return the history with another outcome.

    Return None if it is known, or the history was removed.
    """
    known = HistoryBody(named=named) if before is None else body_of(before)
    if any(one.job_id == new.job_id for one in known.ended) or (before and before.state == FORGOTTEN):
        return None
    body = msgspec.structs.replace(known, ended=(*known.ended, new)[-OUTCOMES:])
    history = _HISTORIES.upsert(before, named.id, body, now)
    wanted = FLAKY if body.contradictions() else STEADY
    history.must(heard if wanted is history.state else contradicted if wanted is FLAKY else calmed)
    return history.change(actor="orchestrator", cause=new.job_id)


def forget_history(record: Record, now: datetime) -> Change:
    """Return the change that ends a history without a recent outcome."""
    return _HISTORIES.fired(record, now).change(actor="orchestrator")


def outcomes_in_words(outcomes: Iterable[JobOutcome]) -> str:
    """Return outcomes in words: `passed in j_… and failed in j_…`."""
    parts: Sequence[str] = [
        f"{'failed first and passed then' if o.passed and o.failed else 'passed' if o.passed else 'failed'}"
        f" in {o.job_id}"
        for o in outcomes
    ]
    return ", ".join(parts[:4]) + (f" and {len(parts) - 4} more" if len(parts) > 4 else "")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]
