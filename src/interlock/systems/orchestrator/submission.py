"""From a submitted spec to a job that waits for a worker. Pure."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar, get_args

import msgspec

from interlock.errors import InvalidJob, TerminalState, TooLarge, UnknownJob
from interlock.lifecycles import attempt, job
from interlock.lifecycles.job import JOB, MAX_DEPTH, MAX_WORKERS, Job, JobState
from interlock.store.ranking import MAX_PRIORITY, MIN_PRIORITY
from interlock.store.records import Batch, Commit, Record
from interlock.store.validation import MAX_ID, MAX_LABEL, MAX_LABELS, MAX_YEAR, MIN_YEAR
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.body import (
    AfterPart,
    JobBody,
    JobGiven,
    LimitPart,
    Place,
    PlanPlace,
    Provenance,
    RunPart,
    SimulationPart,
    TreePart,
    UniquePart,
    encode_given,
)
from interlock.systems.orchestrator.dependencies import after_faults, into_faults
from interlock.systems.orchestrator.failures import RETRIED
from interlock.systems.orchestrator.gates import new_ticket
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.texts import is_whole
from interlock.text import read_duration
from interlock.wire.jobs import IfFails, JobSpec, Unique, UniquePolicy, UniqueScope
from interlock.wire.json_values import json_fault
from interlock.wire.limits import MAX_KEYS, MAX_SLOTS

MAX_RETRIES = 100
MAX_DELAY_S = 366 * 86_400.0
MAX_FACTOR = 100.0
MAX_TASK_NAME = 200
MAX_DESCRIPTION = 2_000
MAX_TRACE = 4_096
MAX_METADATA = 4_096
MAX_METADATA_NAME = 100
MAX_SECRETS = 50
MAX_KEY = 200
"""Maximum length of a unique key; a longer one that is made of arguments is cut."""
T = TypeVar("T")
_decode = msgspec.json.Decoder().decode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_NO_INPUT = msgspec.Raw(b"null")
MOST_KINDS = 8
"""Number of recent groups of a submission to compare the next job with."""
SECRET = re.compile(r"(?!INTERLOCK_)[A-Za-z_][A-Za-z0-9_]{0,99}")


class JobParts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The run, the tree and all else that a new job belongs to."""

    run: RunPart | None = None
    plan: PlanPlace | None = None
    simulation: SimulationPart | None = None
    tree: TreePart | None = None
    depth: int = 0
    """Its depth in the tree."""
    unique: UniquePart | None = None
    after: AfterPart | None = None
    origin_job_id: str | None = None
    """The job that it repeats."""
    origin: Provenance | None = None


ALONE = JobParts()
"""The parts of a job that belongs to nothing."""


def new_job(
    spec: JobSpec,
    job_id: str,
    now: datetime,
    settings: OrchestratorSettings,
    parts: JobParts = ALONE,
    *,
    held: bool = False,
    given: bytes | None = None,
) -> JobAggregate:
    """Return a new job that waits for a worker. The spec was validated before.

    A held job waits for its needs, and cannot be claimed before it is released; so does one that comes after
    others. `given` is the given part of the job, if it is encoded already.
    """
    run, after = parts.run, parts.after
    body = JobBody(
        task=spec.task,
        data=Job(depth=parts.depth, worker_count=spec.worker_count),
        not_after=not_after_of(spec, now) if after is None or spec.start_within_s is None else None,
        timeout_s=spec.timeout_s,
        job_timeout_s=spec.job_timeout_s,
        retries=spec.retries,
        retry=spec.retry,
        losses_allowed=spec.losses,
        origin_job_id=parts.origin_job_id,
        secrets=spec.secrets,
        secrets_withheld=spec.secrets_withheld,
        origin=parts.origin,
        run=run,
        simulation=parts.simulation,
        tree=parts.tree,
        limits=LimitPart(keys=spec.limits, weight=spec.weight) if spec.limits else None,
        after=after,
        attempts=[],
    )
    parent = run.run_id if run is not None else spec.parent_job_id
    place = Place(spec.queue, tuple(sorted(set(spec.labels))), spec.priority, parent)
    given = given_by(spec, parts.unique, parts.plan) if given is None else given
    draft = JobAggregate(job_id, JOB.initial, body, place, now, settings, given=given)
    draft.send(job.Validate(at=now))
    if not held and after is None:
        release(draft, delay_s=delay_of(spec, now))
    return draft


def delay_of(spec: JobSpec, now: datetime) -> float:
    """Return for how many seconds a job is not given out yet."""
    return spec.delay_s if spec.at is None else max((spec.at - now).total_seconds(), 0.0)


def not_after_of(spec: JobSpec, now: datetime) -> datetime | None:
    """Return by when a worker must have started a job, or None."""
    if spec.start_within_s is None:
        return None if spec.not_after is None else spec.not_after.astimezone(UTC)
    return now + timedelta(seconds=delay_of(spec, now) + spec.start_within_s)


def unique_part(spec: JobSpec) -> UniquePart:
    """Return the unique key of a task or queue, from its key or arguments."""
    rule = spec.unique
    assert rule is not None
    place = spec.task if rule.scope == "task" else spec.queue
    shown = rule.key
    if not shown:
        shown = _encode_sorted(_key_arguments(spec.input, rule.by)).decode()
    named = f"{rule.scope}\0{place}\0{'key' if rule.key else 'arguments'}\0{shown}"
    key_id = f"u_{hashlib.sha256(named.encode()).hexdigest()[:40]}"
    if len(shown) > MAX_KEY:
        shown = f"{shown[: MAX_KEY - 1]}…"
    return UniquePart(id=key_id, key=shown, rule=rule)


def _key_arguments(given: msgspec.Raw, names: tuple[str, ...]) -> object:
    """Return the given arguments that make the key."""
    arguments = _decode(given)
    if not names or not isinstance(arguments, dict):
        return arguments
    return {name: arguments[name] for name in names if name in arguments}


class NewJobs(msgspec.Struct, frozen=True):
    """Specs that are equal in all that decisions depend on: they are decided once."""

    spec: JobSpec
    """The common spec."""
    places: list[int]
    given: list[bytes]

    def batch(
        self, ids: Sequence[str], now: datetime, settings: OrchestratorSettings, *, commit_id: str, actor: str
    ) -> Batch:
        """Return these jobs as a batch, with these ids."""
        draft = new_job(self.spec, "", now, settings, given=self.given[0])
        change = draft.change(commit_id=commit_id, actor=actor)
        change = msgspec.structs.replace(change, given=None)
        return Batch(change=change, ids=tuple(ids), given=tuple(self.given))

    def commit(
        self,
        ids: Sequence[str],
        now: datetime,
        settings: OrchestratorSettings,
        *,
        commit_id: str,
        actor: str,
        then: tuple[str, ...] = (),
    ) -> Commit:
        """Return these jobs in one commit.

        A ticket is added if they line up for the slots of their limits. `then` names the jobs that receive
        their ends.
        """
        draft = new_job(self.spec, "", now, settings, given=self.given[0])
        draft.body.then = then
        like = draft.change(commit_id=commit_id, actor=actor)
        changes = [
            msgspec.structs.replace(like, id=job_id, given=given)
            for job_id, given in zip(ids, self.given, strict=True)
        ]
        if self.spec.limits:
            at, key = draft.lines_up_at or now, self.spec.limits[0]
            priority = self.spec.priority
            changes.append(
                new_ticket(f"{ids[0]}.0", key, ids, at, now, priority=priority, commit_id=commit_id)
            )
        return Commit(changes=tuple(changes))


def group_equal_specs(specs: Sequence[JobSpec], settings: OrchestratorSettings) -> list[NewJobs]:
    """Return groups of equal specs; raise for the first invalid one."""
    if len(specs) == 1:  # there is none to compare it with
        check_spec(specs[0], settings)
        return [NewJobs(specs[0], [0], [given_by(specs[0])])]
    return [
        NewJobs(like, places, [given_by(specs[place]) for place in places])
        for like, places in check_specs(specs, settings)
    ]


def check_specs(specs: Sequence[JobSpec], settings: OrchestratorSettings) -> list[tuple[JobSpec, list[int]]]:
    """Return equal specs' common part and places; raise for an invalid one."""
    groups = grouped([without_given(spec) for spec in specs])
    firsts = {places[0] for _, places in groups}
    for place, spec in enumerate(specs):
        (check_spec if place in firsts else _check_given)(spec, settings)
    return groups


def without_given(spec: JobSpec) -> JobSpec:
    """Return the spec without what no decision depends on."""
    return msgspec.structs.replace(spec, input=_NO_INPUT, description="", trace={}, metadata={})


def grouped(values: Iterable[T]) -> list[tuple[T, list[int]]]:
    """Return each value with the places of those that are equal to it.

    A value is compared with the last few only.
    """
    groups: list[tuple[T, list[int]]] = []
    for place, value in enumerate(values):
        for common, places in reversed(groups[-MOST_KINDS:]):
            if value == common:
                places.append(place)
                break
        else:
            groups.append((value, [place]))
    return groups


def given_by(spec: JobSpec, unique: UniquePart | None = None, plan: PlanPlace | None = None) -> bytes:
    """Return the given part of a job, on which no decision depends."""
    if unique is None and spec.unique is not None:
        unique = unique_part(spec)
    return encode_given(JobGiven(spec.input, spec.description, spec.trace, spec.metadata, unique, plan))


def without_context(spec: JobSpec) -> JobSpec:
    """Return the spec without trace and metadata.

    A repeated request may come from another context.
    """
    return msgspec.structs.replace(spec, trace={}, metadata={}) if spec.trace or spec.metadata else spec


def release(draft: JobAggregate, *, delay_s: float = 0.0) -> None:
    """Release a held job to runners; no effect on released ones."""
    for one in draft.body.attempts:
        if one.state is attempt.CREATED and one.ready_in(draft.now) is None:
            one.prompt = draft.record is None and not delay_s
            one.ready_at = None if one.prompt else draft.now + timedelta(seconds=delay_s)
            if not delay_s:
                draft.send_attempt(one, attempt.publish)


def check_spec(spec: JobSpec, settings: OrchestratorSettings) -> None:
    """Raise an error with all faults of a job, before it is stored."""
    check_size(spec.task, spec.input, settings)
    if faults := list(_faults(spec)):
        raise _unacceptable(spec, faults)


def _check_given(spec: JobSpec, settings: OrchestratorSettings) -> None:
    """Validate the given data of a job whose group is already validated."""
    check_size(spec.task, spec.input, settings)
    if json_fault(spec.input) or any(_text_faults(spec)) or any(_argument_faults(spec)):
        raise _unacceptable(spec, list(_faults(spec)))


def _unacceptable(spec: JobSpec, faults: list[str]) -> InvalidJob:
    return InvalidJob(
        "The job cannot be accepted: " + "; ".join(faults) + ".",
        todo="Correct it and submit it again; nothing was stored.",
        facts={"task": spec.task, "faults": faults},
    )


def check_size(task: str, given: bytes | msgspec.Raw, settings: OrchestratorSettings) -> None:
    """Raise if an input is too large, before it is decoded."""
    if len(given) > settings.max_input_bytes:
        raise TooLarge(
            f"The input of a job has at most {settings.max_input_bytes} bytes, not {len(given)}.",
            todo="Keep large data elsewhere, and pass a reference to it.",
            facts={"task": task, "bytes": len(given), "limit": settings.max_input_bytes},
        )


def depth_below(parent_id: str, parent: Record | None) -> int:
    """Return the depth of a child of this job; raise if it cannot have one."""
    if parent is None:
        raise UnknownJob(
            f"There is no job {parent_id}, so it cannot be a parent.",
            todo="Submit it without a parent, or name one that exists.",
            facts={"parent_job_id": parent_id},
        )
    if JobState(parent.state) in job.ENDED:
        raise TerminalState(
            f"The job {parent_id} is {parent.state}, which is final, so it takes no more children.",
            todo="Submit it without a parent.",
            facts={"parent_job_id": parent_id, "machine": JOB.name, "state": parent.state},
        )
    depth = msgspec.json.decode(parent.body, type=_Deep).data.depth + 1
    if depth > MAX_DEPTH:
        raise InvalidJob(
            f"A job is at most {MAX_DEPTH} deep in its tree; a child of {parent_id} would be {depth}.",
            todo="Submit it without a parent, or higher up in the tree.",
            facts={"parent_job_id": parent_id, "depth": depth, "limit": MAX_DEPTH},
        )
    return depth


class _Deep(msgspec.Struct):
    """The part of a job's body with its depth."""

    data: Job = Job()


def _faults(spec: JobSpec) -> Iterator[str]:
    if fault := json_fault(spec.input):
        yield f"the input {fault}"
    yield from _place_faults(spec)
    if not _is_name(spec.task, MAX_TASK_NAME):
        yield f"the name of a task has 1 to {MAX_TASK_NAME} printable characters"
    if not 1 <= spec.worker_count <= MAX_WORKERS:
        yield f"worker_count is {spec.worker_count} and must be 1 to {MAX_WORKERS}"
    if not (math.isfinite(spec.delay_s) and 0 <= spec.delay_s <= MAX_DELAY_S):
        yield f"delay_s is {spec.delay_s:g} and must be 0 to {MAX_DELAY_S:g}"
    for name, seconds in (("timeout_s", spec.timeout_s), ("job_timeout_s", spec.job_timeout_s)):
        if seconds is not None and not (math.isfinite(seconds) and 0 < seconds <= MAX_DELAY_S):
            yield f"{name} is {seconds:g} and must be more than 0, and at most {MAX_DELAY_S:g}"
    options: tuple[tuple[object, Callable[[JobSpec], Iterator[str]]], ...] = (
        (spec.description or spec.trace or spec.metadata, _text_faults),
        (spec.at or spec.not_after or spec.start_within_s is not None, _time_faults),
        (spec.unique, _unique_faults),
        (spec.unique or spec.after, _argument_faults),
        (spec.retry or spec.retries is not None or spec.losses is not None, _retry_faults),
        (spec.secrets, _secret_faults),
        (spec.limits or spec.weight != 1, _limit_faults),
        (spec.after, after_faults),
    )
    for is_set, faults in options:  # most jobs have none of them
        if is_set:
            yield from faults(spec)


def _limit_faults(spec: JobSpec) -> Iterator[str]:
    if len(spec.limits) > MAX_KEYS or len(set(spec.limits)) != len(spec.limits):
        yield f"there are at most {MAX_KEYS} limits, each named once"
    if not all(_is_name(key, MAX_ID) and not key.endswith("*") for key in spec.limits):
        yield f"the name of a limit has 1 to {MAX_ID} printable characters, and no * at its end"
    if not 1 <= spec.weight <= MAX_SLOTS:
        yield f"the weight is {spec.weight} and must be 1 to {MAX_SLOTS}"


def _time_faults(spec: JobSpec) -> Iterator[str]:
    for name, at in (("at", spec.at), ("not_after", spec.not_after)):
        if at is None:
            continue
        if at.tzinfo is None:
            yield f"{name} is {at.isoformat()}, which has no time zone; write {at.isoformat()}Z for UTC"
        elif not MIN_YEAR <= at.year <= MAX_YEAR:
            yield f"{name} is {at.isoformat()} and must be in the years {MIN_YEAR} to {MAX_YEAR}"
    if spec.at is not None and spec.delay_s:
        yield "at and delay_s exclude each other; give one of them"
    wait_s = spec.start_within_s
    if wait_s is not None and spec.not_after is not None:
        yield "not_after and start_within_s exclude each other; give one of them"
    if wait_s is not None and not 0 < wait_s <= MAX_DELAY_S:  # neither holds for what is no number
        yield f"start_within_s is {wait_s:g} and must be more than 0, and at most {MAX_DELAY_S:g}"


def _unique_faults(spec: JobSpec) -> Iterator[str]:
    rule = spec.unique
    assert rule is not None
    for name, text, allowed in (
        ("unique.policy", rule.policy, get_args(UniquePolicy)),
        ("unique.scope", rule.scope, get_args(UniqueScope)),
    ):
        if text not in allowed:
            yield f"{name} is {text!r} and must be one of {', '.join(allowed)}"
    if rule.key and not _is_name(rule.key, MAX_KEY):
        yield f"unique.key has 1 to {MAX_KEY} printable characters"
    if rule.key and rule.by:
        yield "unique has both a key and names of arguments (by); give one of them"
    yield from _counting_faults(rule)


def _argument_faults(spec: JobSpec) -> Iterator[str]:
    yield from into_faults(spec)
    rule = spec.unique
    if rule is None or not rule.by:
        return
    try:
        given = _decode(spec.input)
    except (msgspec.DecodeError, RecursionError):  # another fault, which is reported by itself
        return
    if not isinstance(given, dict):
        yield "unique.by names arguments, and the input is no object of arguments by name"
    elif not any(name in given for name in rule.by):
        yield f"none of the arguments of unique.by is given: {', '.join(rule.by)}"


def _counting_faults(rule: Unique) -> Iterator[str]:
    known = [str(each) for each in JobState]
    for name in rule.states:
        if name.upper() not in known:
            yield f"unique.states has {name!r}; a job is one of {', '.join(known)}"
    ended = [name for name in rule.states if name.upper() in job.ENDED]
    if ended and not rule.within:
        yield f"unique.states has {ended[0]}, so unique.within must say for how long, such as 1h"
    if rule.within:
        try:
            read_duration(rule.within)
        except ValueError as error:
            yield f"unique.within: {error}"
        if rule.states and not ended:
            yield "unique.within is about jobs that have ended, and unique.states names none of their states"


def _place_faults(spec: JobSpec) -> Iterator[str]:
    if not _is_name(spec.queue, MAX_ID):
        yield f"the name of a queue has 1 to {MAX_ID} printable characters"
    if spec.parent_job_id is not None and not _is_name(spec.parent_job_id, MAX_ID):
        yield f"the id of a parent has 1 to {MAX_ID} printable characters"
    if spec.if_fails not in get_args(IfFails):
        yield f"if_fails is {spec.if_fails!r} and must be one of {', '.join(get_args(IfFails))}"
    if spec.labels and not all(_is_name(label, MAX_LABEL) for label in spec.labels):
        yield f"a label has 1 to {MAX_LABEL} printable characters"
    if spec.labels and len(set(spec.labels)) > MAX_LABELS:
        yield f"there are {len(set(spec.labels))} labels, at most {MAX_LABELS}"
    if not MIN_PRIORITY <= spec.priority <= MAX_PRIORITY:
        yield f"the priority is {spec.priority} and must be {MIN_PRIORITY} to {MAX_PRIORITY}"


def _text_faults(spec: JobSpec) -> Iterator[str]:
    if spec.description and (len(spec.description) > MAX_DESCRIPTION or not is_whole(spec.description)):
        yield f"a description has at most {MAX_DESCRIPTION} whole characters"
    trace = (*spec.trace, *spec.trace.values()) if spec.trace else ()
    if trace and (sum(map(len, trace)) > MAX_TRACE or not all(map(is_whole, trace))):
        yield f"a trace has at most {MAX_TRACE} whole characters"
    if spec.metadata:
        yield from _metadata_faults(spec.metadata)


def _metadata_faults(metadata: dict[str, str]) -> Iterator[str]:
    if not all(_is_name(name, MAX_METADATA_NAME) for name in metadata):
        yield f"a name of metadata has 1 to {MAX_METADATA_NAME} printable characters"
    texts = (*metadata, *metadata.values())
    if sum(map(len, texts)) > MAX_METADATA or not all(map(is_whole, texts)):
        yield f"metadata have at most {MAX_METADATA} whole characters, names and texts together"


def _secret_faults(spec: JobSpec) -> Iterator[str]:
    if len(spec.secrets) > MAX_SECRETS or len(set(spec.secrets)) != len(spec.secrets):
        yield f"there are at most {MAX_SECRETS} secrets, each named once"
    for name in spec.secrets:
        if not SECRET.fullmatch(name):
            yield f"{name[:MAX_ID]!r} cannot be the name of a secret: it becomes a variable like NPM_TOKEN"


def _retry_faults(spec: JobSpec) -> Iterator[str]:
    known = [str(each) for each in RETRIED]
    counts = {"retries": spec.retries, "losses": spec.losses}
    counts |= {f"the retries of {name}": rule.retries for name, rule in spec.retry.items()}
    for name, number in counts.items():
        if number is not None and not 0 <= number <= MAX_RETRIES:
            yield f"{name} is {number} and must be 0 to {MAX_RETRIES}"
    for name, rule in spec.retry.items():
        if name not in known:
            yield f"there is no class of failure {name!r} to retry; there are {', '.join(known)}"
        pauses = (rule.first_pause_s, rule.longest_pause_s)
        if not all(0 <= number <= MAX_DELAY_S for number in pauses):  # neither comparison holds for NaN
            yield f"the pauses of {name} must be 0 to {MAX_DELAY_S:g} s"
        if not (0 <= rule.factor <= MAX_FACTOR and 0 <= rule.jitter <= MAX_FACTOR):
            yield f"factor and jitter of {name} must be 0 to {MAX_FACTOR:g}"


def _is_name(text: str, most: int) -> bool:
    return 1 <= len(text) <= most and text.isprintable()
