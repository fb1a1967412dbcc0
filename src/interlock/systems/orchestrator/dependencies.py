"""Dependencies between jobs: which job comes after which, and the effect of an end on others. Pure.

A job that comes after others is held: it has no time from which it is ready, so a claim knows nothing of it.
Each of its predecessors names it (`JobBody.then`), in the commit that creates it. The commit in which a
predecessor ends carries a message to the jobs that it names, so a crash loses none. A job notes which ends it
has received by striking them off a list of names: a repeated message changes nothing.

A job can only come after jobs that exist, or that stand before it in the same request, so there is no cycle.

Why: decision 0420.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from interlock.engine.outbox import outgoing
from interlock.errors import InvalidJob, UnknownJob
from interlock.lifecycles import job
from interlock.lifecycles.couplings import Recipient
from interlock.lifecycles.job import JobState
from interlock.store.records import Change, Record
from interlock.systems.orchestrator.aggregate import SKIPPED, JobAggregate
from interlock.systems.orchestrator.body import AfterPart, decode_body
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.wire.jobs import MAX_AFTER, JobSpec, SubmittedJob
from interlock.wire.json_values import json_fault

ENDS = "job.ended"
"""The topic of messages to jobs about the end of a job that they come after."""
_ENCODER = msgspec.json.Encoder()


class EndMessage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A job has ended."""

    job_id: str
    state: str
    then: tuple[str, ...]
    """Jobs that come after it."""
    counts: bool = False
    """Whether it counts as a success."""
    stops: bool = False
    """Whether jobs that wait for its success are stopped."""


class DependenciesNotified(msgspec.Struct, frozen=True):
    """Published when jobs that others come after have ended."""


def end_messages_of(draft: JobAggregate) -> tuple[Change, ...]:
    """Return the message of a job that has just ended to its followers."""
    if not draft.body.then or not draft.ended:
        return ()
    stops = any(coupling.to is Recipient.FOLLOWERS for coupling, _ in draft.outward)
    message = _message_of(draft.id, draft.root.state, draft.root.data.stop_reason, draft.body.then, stops)
    return (outgoing(f"{draft.id}.ended", ENDS, _ENCODER.encode(message), draft.now),)


def _message_of(
    job_id: str, state: JobState, stop_reason: str | None, then: tuple[str, ...], stops: bool
) -> EndMessage:
    counts = state is job.COMPLETED or (state is job.CANCELED and stop_reason == SKIPPED)
    return EndMessage(job_id, state, then, counts, stops)


# Submission


def place_in(name: str) -> int | None:
    """Return the place of `#3` in the request, or None for an id."""
    return int(name[1:]) if name[:1] == "#" and name[1:].isdecimal() else None


def named_in(specs: Sequence[JobSpec]) -> list[str]:
    """Return the ids of existing jobs that these come after."""
    named = (each for spec in specs if spec.after is not None for each in spec.after.jobs)
    return sorted({each for each in named if place_in(each) is None})


def refuse_both(parents: Sequence[str], named: Sequence[str]) -> None:
    """Raise if a job gets children and followers in one request.

    A commit changes each record once.
    """
    if both := sorted(set(parents) & set(named)):
        raise InvalidJob(
            f"One request cannot add both children of the job {both[0]} and jobs that come after it.",
            todo="Submit them in two requests.",
            facts={"job_id": both[0]},
        )


class DependentSubmission:
    """Changes of existing jobs that new ones come after."""

    def __init__(
        self,
        found: Mapping[str, Record | None],
        now: datetime,
        settings: OrchestratorSettings,
        changed: Mapping[str, tuple[JobAggregate, str]] = {},
        known: Mapping[str, Record | None] = {},
    ) -> None:
        """Prepare a submission of jobs that come after others.

        `found` are the jobs that are named by their ids; `known` are those that have unique keys. `changed`
        are the working copies of jobs that the submission also changes otherwise.
        """
        self._named, self._known = found, known
        self._now, self._settings = now, settings
        self._changed = changed
        self._living: dict[str, JobAggregate] = {}
        self._ended: dict[str, tuple[str, ...]] = {}

    def part(self, spec: JobSpec, before: Sequence[SubmittedJob]) -> AfterPart | None:
        """Return the condition of a job; raise if it names a missing job."""
        rule = spec.after
        if rule is None:
            return None
        ids = tuple(dict.fromkeys(_id_of(each, before) for each in rule.jobs))
        for job_id in ids:
            if self._named.get(job_id, rule) is None:
                raise _unknown(job_id)
        return AfterPart(
            rule=replace(rule, jobs=ids),
            left=ids,
            delay_s=spec.delay_s,
            not_before=spec.at,
            start_within_s=spec.start_within_s,
        )

    def follow(self, job_id: str, part: AfterPart, new: Mapping[str, JobAggregate]) -> None:
        """Name a job in its predecessors; ended ones count at once."""
        for name in part.rule.jobs:
            before = new.get(name) or self._draft(name)
            if before is None:
                self._ended[name] = (*self._ended.get(name, ()), job_id)
                continue
            if len(before.body.then) >= MAX_AFTER:
                raise InvalidJob(
                    f"{MAX_AFTER} jobs come after the job {name} already.",
                    todo="Let further ones come after one of those, or submit them from a handler.",
                    facts={"job_id": name, "limit": MAX_AFTER},
                )
            before.body.then = (*before.body.then, job_id)

    def _draft(self, name: str) -> JobAggregate | None:
        """Return the working copy of an existing job; None if it has ended."""
        if name in self._changed:
            return self._changed[name][0]
        if name not in self._living:
            record = self._record(name)
            if JobState(record.state) in job.ENDED:
                return None
            self._living[name] = JobAggregate.of(record, self._now, self._settings)
        return self._living[name]

    def _record(self, name: str) -> Record:
        record = self._named.get(name) or self._known.get(name)
        assert record is not None
        return record

    @property
    def living(self) -> list[JobAggregate]:
        """The existing jobs that name others now."""
        return list(self._living.values())

    def messages(self) -> Iterator[Change]:
        """Yield for each ended job the message that it would have sent."""
        for name, then in self._ended.items():
            record = self._record(name)
            data, state = decode_body(record.body).data, JobState(record.state)
            message = _message_of(name, state, data.stop_reason, then, stops=True)
            yield outgoing(f"{name}.ended.{then[0]}", ENDS, _ENCODER.encode(message), self._now)


def _id_of(name: str, before: Sequence[SubmittedJob]) -> str:
    place = place_in(name)
    if place is None:
        return name
    if place >= len(before):
        raise InvalidJob(
            f"{name} is not a job before this one in the request, so the job cannot come after it.",
            todo="Name an earlier job: #0 is the first one.",
            facts={"after": name, "place": len(before)},
        )
    return before[place].id


def _unknown(job_id: str) -> UnknownJob:
    return UnknownJob(
        f"There is no job {job_id}, so no job can come after it.",
        todo="Name a job that exists; ended jobs are pruned after a while.",
        facts={"job_id": job_id},
    )


def after_faults(spec: JobSpec) -> Iterator[str]:
    """Yield the faults of the rule about the jobs that a job comes after."""
    after = spec.after
    if after is None:
        return
    if not 1 <= len(after.jobs) <= MAX_AFTER:
        yield f"after names {len(after.jobs)} jobs, and must name 1 to {MAX_AFTER}"
    if len(set(after.jobs)) != len(after.jobs):
        yield "after names a job twice"
    if spec.parent_job_id is not None and spec.parent_job_id in after.jobs:
        yield "a job cannot come after its own parent, which may wait for it"
    if after.listed and not after.into:
        yield "after.listed says how results are given to the argument after.into, which is empty"


def into_faults(spec: JobSpec) -> Iterator[str]:
    """Yield why results cannot be put into the input of a job."""
    after = spec.after
    if after is None or not after.into or json_fault(spec.input):
        return
    given = msgspec.json.decode(spec.input)
    if not isinstance(given, dict):
        yield "after.into names an argument, and the input is no object of arguments by name"
    elif after.into in given:
        yield f"after.into is {after.into!r}, and the input has that argument already"
