"""Reports that say the same about jobs that were given out together: one is judged for all. Pure.

Most jobs of a claim end the same way: they succeed. What each has returned is its result, on which no
decision depends. So one report about a job that stands for all of them is heard, and all are committed as
a batch, each with its own result. Everything else that is said about a job is heard by itself.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from interlock.lifecycles import job
from interlock.store.records import Batch, Record
from interlock.systems.orchestrator.grants import ANY_JOB, any_job, is_about_one
from interlock.systems.orchestrator.runner_messages import decide_message, is_kept_inline
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.tokens import is_the_same, read_token
from interlock.wire.runner import Answer, Complete, Heard, Message, Succeeded

_ANY_RESULT = msgspec.Raw(b'"~any~result~"')


class Report(NamedTuple):
    """What tells reports that say the same from others."""

    given_by: int
    """Which decision the jobs were given out by, together."""
    token_tail: str
    """All of a token but the job that it is about."""
    runner_id: str
    cost: float | None


class HeardTogether(msgspec.Struct, frozen=True):
    """What such a report does: the answer to each, and the batch without the results."""

    answer: Answer
    batch: Batch


def report_of(given_by: int, token: str, message: Message, settings: OrchestratorSettings) -> Report | None:
    """Return what a message says as far as others may say the same; None if it is heard by itself.

    `given_by` tells the decision that has given out its job together with others, and `token` is what was
    given with this one.
    """
    if type(message) is not Complete:
        return None
    outcome = message.outcome
    if message.log or message.log_offset is not None or type(outcome) is not Succeeded:
        return None
    if not is_the_same(message.token, token) or not is_kept_inline(outcome.result, settings):
        return None
    tail = token.partition(".")[2]
    return Report(given_by, tail, message.runner_id, message.cost)


def result_in(message: Message) -> bytes:
    """Return what such a report says was returned."""
    assert isinstance(message, Complete)
    assert isinstance(message.outcome, Succeeded)
    return bytes(message.outcome.result)


def decide_completions(
    report: Report, records: list[Record], now: datetime, mark: str, settings: OrchestratorSettings
) -> HeardTogether | None:
    """Return what such reports do to these jobs; None where that depends on which one it is."""
    stands_for_all = any_job(records[0], now)
    token = read_token(f"any.{report.token_tail}")
    if token is None:
        return None
    token = replace(token, job_id=ANY_JOB)
    said = Complete(
        token=str(token), runner_id=report.runner_id, outcome=Succeeded(_ANY_RESULT), cost=report.cost
    )
    decision = decide_message(stands_for_all, token, said, now, mark, settings)
    commit = decision.commit
    if commit is None or len(commit.changes) != 1 or commit.refusals:
        return None
    (change,) = commit.changes
    common = replace(change, id="", expected_at=None, result=None)
    # What is yet to come of a job may depend on its id, like the pause before the next attempt.
    if (
        not isinstance(decision.answer, Heard)
        or change.state != job.COMPLETED
        or change.result != bytes(_ANY_RESULT)
        or is_about_one(common)
    ):
        return None
    batch = Batch(
        change=common,
        ids=tuple([record.id for record in records]),
        expected_at=tuple([record.updated_at for record in records]),
        not_after=commit.not_after,
    )
    return HeardTogether(decision.answer, batch)
