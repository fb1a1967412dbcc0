"""Unique jobs: at most one job that counts has a key. Pure but for `UniqueKeys`, which frees old keys.

A key has a record of its own, which names the jobs that were submitted with it. It is written in the commit
that creates a job, and is compared by its version: of two submissions with one key the store refuses the
second, which reads again and finds the job of the first. Whether a job counts follows from the job itself,
from its state and the time of its end. So a key is free the moment its job ends, crashes or is pruned, and
nothing has to be cleaned up for that. `UniqueKeys.free` only removes records that say nothing any more.

Why: decision 0403.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import TypeAlias, TypeVar

import msgspec

from interlock.engine.aggregate import Columns, RecordKind
from interlock.engine.bulk import Item, apply_all
from interlock.engine.unit_of_work import Applied, Decision, Engine, IdempotencyKey, contended
from interlock.errors import DuplicateJob
from interlock.lifecycles import attempt, job
from interlock.lifecycles.job import JOB, Job, JobState
from interlock.machine import Event, Machine, Tone, command, ignore, on, rest, state
from interlock.store.records import Change, Commit, Key, Query, Record, Repeated
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.body import JobGiven, UniquePart, encode_given
from interlock.systems.orchestrator.gates import limit_messages_of
from interlock.systems.orchestrator.grants import has_expired
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.submission import delay_of, not_after_of, unique_part
from interlock.text import read_duration
from interlock.wire.jobs import JobSpec, SubmittedJob, Unique

A = TypeVar("A")
ROUNDS = 20
"""Maximum number of decisions of a submission whose key names jobs that were not loaded."""
MAX_JOBS = 100
"""Maximum number of jobs in the record of a key: several if running jobs do not count."""
FREED_AFTER = timedelta(hours=1)
"""Age from which a record of a key is checked, and retention of a free one."""


class KeyState(StrEnum):
    """States of a unique key."""

    HELD = "held"
    FREE = "free"


HELD, FREE = KeyState.HELD, KeyState.FREE

take: Event = command("take", "A job was submitted with the key.", by="orchestrator")
free: Event = command("free", "None of its jobs counts any more.", by="orchestrator")

# fmt: off
UNIQUE_KEY = Machine[KeyState, None](
    "unique_key",
    "Which jobs were submitted with a unique key.",
    initial=HELD,
    spine=(HELD, FREE),
    stop=(free,),
    states=(
        state(HELD, "A job was submitted with it; its state decides whether it counts.", turn="orchestrator"),
        rest(FREE, "No job with it counts; the record is pruned, or taken again.", tone=Tone.WAITING),
    ),
    rows=(
        on(take, FREE, HELD, owner="orchestrator", why="Another job was submitted with it."),
        on(free, HELD, FREE, owner="orchestrator", why="Its jobs have ended, and their period is over."),
        ignore(take, HELD, why="it is held already; it names one more job"),
        ignore(free, FREE, why="it is free"),
    ),
)
# fmt: on


class KeyBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Body of the record of a unique key."""

    key: str = ""
    """As people read it."""
    jobs: tuple[str, ...] = ()
    """The jobs that may count, oldest first."""
    keep_s: float = 0.0
    """The longest time for which one of them counts after its end."""


_NO_JOBS = KeyBody()
_encode = msgspec.json.Encoder().encode

KEYS = RecordKind(UNIQUE_KEY, KeyBody, columns=lambda _: Columns(), journalled=False)


def key_of(part: UniquePart) -> Key:
    """Return where the record of a unique key is."""
    return Key(UNIQUE_KEY.name, part.id)


class Counts(msgspec.Struct, frozen=True):
    """Rule that decides which jobs count as existing."""

    states: frozenset[str]
    within_s: float = 0.0

    def counts(self, record: Record | None, now: datetime) -> bool:
        """Return whether a job counts, neither pruned nor expired."""
        if record is None or record.state not in self.states or has_expired(record, now):
            return False
        return record.state not in job.ENDED or ended_at(record) + timedelta(seconds=self.within_s) > now


@lru_cache(maxsize=1_024)
def counting(rule: Unique) -> Counts:
    """Return which jobs count by a rule, with defaults of its policy."""
    within_s = read_duration(rule.within).total_seconds() if rule.within else 0.0
    if rule.states:
        return Counts(frozenset(name.upper() for name in rule.states), within_s)
    live = job.WAITING if rule.policy in ("replace", "debounce") else LIVE
    return Counts(frozenset((*live, job.COMPLETED) if within_s else live), within_s)


LIVE = tuple(each for each in JobState if each not in job.ENDED)
ANY_STATE = frozenset(map(str, JobState))


class _Ends(msgspec.Struct):
    data: Job = Job()


_ENDS = msgspec.json.Decoder(_Ends)


def ended_at(record: Record) -> datetime:
    """Return when a job ended."""
    return _ENDS.decode(record.body).data.completed_at or record.updated_at


_NEW_KEY = KEYS.new("u", KeyBody(), datetime.fromtimestamp(0, UTC)).change(commit_id="", actor="orchestrator")
"""The change that creates a key; it has neither a note nor times, so that only id and body differ."""


def first_with(part: UniquePart, rule: Unique, job_id: str) -> Change:
    """Return the change that creates a key's record, if there is none."""
    return new_key(part.id, KeyBody(key=part.key, jobs=(job_id,), keep_s=counting(rule).within_s))


def new_key(name: str, body: KeyBody) -> Change:
    """Return the change that creates the record of a key."""
    return msgspec.structs.replace(_NEW_KEY, id=name, body=_encode(body))


class KeyedSubmission:
    """The unique keys of jobs that are being submitted together, and the jobs that have them.

    `missing` are jobs that a key names and that were not loaded: load them, and decide again.
    """

    def __init__(
        self,
        keys: Mapping[str, Record | None],
        jobs: Mapping[str, Record | None],
        now: datetime,
        settings: OrchestratorSettings,
        parts: Mapping[int, UniquePart] | None = None,
    ) -> None:
        self._keys, self._jobs = keys, jobs
        self._parts = parts or {}
        self._now, self._settings = now, settings
        self.missing: set[str] = set()
        self.found: bool = False
        """Whether another job was found for a submission."""
        self._bodies = {
            name: _NO_JOBS if record is None else KEYS.body_of(record) for name, record in keys.items()
        }
        self._written: set[str] = set()
        self._new: dict[str, JobAggregate] = {}
        self.changed: dict[str, tuple[JobAggregate, str]] = {}
        """Working copies of the jobs that are changed, each with the reason."""
        self.known = jobs

    def part(self, spec: JobSpec) -> UniquePart | None:
        """Return the unique key of a job, made once for each spec."""
        if spec.unique is None:
            return None
        return self._parts.get(id(spec)) or unique_part(spec)

    def find(self, spec: JobSpec) -> SubmittedJob | None:
        """Return the job that exists for a submission, by its unique key.

        The policy decides how the job changes. Raise `DuplicateJob` where the policy is to reject, or where
        the job cannot be changed.
        """
        part, rule = self.part(spec), spec.unique
        if part is None or rule is None or not self._bodies[part.id].jobs:
            return None
        there = self._counting(part, counting(rule))
        if there is None or self.missing:
            return None
        self.found = True
        match rule.policy:
            case "existing":
                return SubmittedJob(there, "existing")
            case "replace" | "debounce":
                self._change(there, part, spec)
                return SubmittedJob(there, "replaced" if rule.policy == "replace" else "debounced")
            case _:
                raise self._duplicate(there, part)

    def take(self, spec: JobSpec, draft: JobAggregate) -> None:
        """Note a new job under its key."""
        self.note(spec, draft.id)
        self._new[draft.id] = draft

    def note(self, spec: JobSpec, job_id: str) -> None:
        """Decide about a job whose key no other job of this submission has."""
        part = self.part(spec)
        if part is None or spec.unique is None:
            return
        self._written.add(part.id)
        body, keep_s = self._bodies[part.id], counting(spec.unique).within_s
        if not body.jobs:
            self._bodies[part.id] = KeyBody(key=part.key, jobs=(job_id,), keep_s=max(body.keep_s, keep_s))
            return
        keep_s = max(body.keep_s, keep_s)
        kept = Counts(ANY_STATE, keep_s)
        jobs = [
            each for each in body.jobs if each in self._new or kept.counts(self._jobs.get(each), self._now)
        ]
        jobs = [*jobs, job_id][-MAX_JOBS:]
        self._bodies[part.id] = KeyBody(key=part.key, jobs=tuple(jobs), keep_s=keep_s)

    def changes(self, *, commit_id: str, actor: str) -> list[Change]:
        """Return the keys that were taken, and the jobs that were changed."""
        changes: list[Change] = []
        for draft, why in self.changed.values():
            changes.append(draft.change(commit_id=commit_id, actor=actor, reason=why, note=True))
            changes += limit_messages_of(draft)
        for name in sorted(self._written):
            record, body = self._keys[name], self._bodies[name]
            if record is None:
                changes.append(new_key(name, body))
                continue
            entity = KEYS.of(record, self._now, body)
            if record.state != HELD:
                entity.must(take)
            changes.append(entity.change(commit_id=commit_id, actor=actor))
        return changes

    def _counting(self, part: UniquePart, rule: Counts) -> str | None:
        """Return the newest job of a key that counts."""
        for job_id in reversed(self._bodies[part.id].jobs):
            if job_id in self._new:
                if job.PENDING in rule.states:
                    return job_id
            elif job_id not in self._jobs:
                self.missing.add(job_id)
            elif rule.counts(self._jobs[job_id], self._now):
                return job_id
        return None

    def _change(self, job_id: str, part: UniquePart, spec: JobSpec) -> None:
        """Replace the input and the context of a job by a new submission's.

        With the policy `debounce` its delay also begins again.
        """
        draft = self._draft(job_id)
        if why := _fixed(draft, spec):
            raise self._duplicate(job_id, part, why)
        if job_id in self._new:
            draft.given = encode_given(
                JobGiven(spec.input, spec.description, spec.trace, spec.metadata, part)
            )
            return
        body = draft.body
        body.input, body.description, body.trace = spec.input, spec.description, spec.trace
        body.metadata = spec.metadata
        reason = f"input replaced by a submission with its unique key {part.key}"
        if spec.unique is not None and spec.unique.policy == "debounce":
            reason = f"debounced by a submission with its unique key {part.key}"
            debounce(draft, spec)
        self.changed[job_id] = draft, reason[:500]

    def _draft(self, job_id: str) -> JobAggregate:
        """Return the working copy of a job, the same each time."""
        if job_id in self._new:
            return self._new[job_id]
        if job_id in self.changed:
            return self.changed[job_id][0]
        record = self._jobs[job_id]
        assert record is not None
        return JobAggregate.of(record, self._now, self._settings)

    def _duplicate(self, job_id: str, part: UniquePart, why: str = "") -> DuplicateJob:
        record = self._jobs.get(job_id)
        state = JobState.PENDING if record is None else record.state
        cannot = f", which cannot be changed: {why}" if why else ""
        return DuplicateJob(
            f"The job {job_id} has the unique key {part.key!r} and is {state}{cannot}.",
            todo=f"See it with `interlock job show {job_id}`, or cancel it first. Submit with policy "
            '"existing" to get it instead of an error.',
            facts={"job_id": job_id, "state": str(state), "unique_key": part.key},
        )


def _fixed(draft: JobAggregate, spec: JobSpec) -> str:
    """Return why a submission may not change a job; nothing where it may.

    A submitter must not come by what another one has been given: another task, secrets, or a place in a tree.
    """
    if draft.state is not job.PENDING:
        return f"it is {draft.state}, and only a job that waits is changed"
    body = draft.body
    if body.task != spec.task:
        return f"its task is {body.task}"
    if body.run is not None or body.origin is not None or body.simulation is not None:
        return "it belongs to a run or a simulation"
    if body.secrets != spec.secrets or body.secrets_withheld != spec.secrets_withheld:
        return "it is given other secrets"
    if draft.place.parent != spec.parent_job_id:
        return "it has another parent"
    if body.after is not None or spec.after is not None:
        return "it comes after other jobs"
    return ""


def debounce(draft: JobAggregate, spec: JobSpec) -> None:
    """Restart the delay of a job that waits."""
    ready_at = draft.now + timedelta(seconds=delay_of(spec, draft.now))
    for one in draft.body.attempts:
        if one.state in attempt.UNLEASED and one.ready_in(draft.created_at) is not None:
            one.prompt, one.ready_at = False, ready_at
    draft.body.not_after = not_after_of(spec, draft.now)
    draft.arm(JOB, draft.root)


DecideKeyed: TypeAlias = "Callable[[Sequence[Record | None], KeyedSubmission, datetime], Decision[A]]"
"""Pure: from the records that were asked for, the unique keys and the time to a decision."""


class KeyForecast:
    """A forecast: the next submission probably is the first with its keys if the last one was.

    Then its keys are not loaded: the store refuses the commit if there is one, and they are loaded for the
    next decision.
    """

    def __init__(self) -> None:
        self.are_new: bool = True


async def apply_keyed(
    engine: Engine,
    idempotency_key: IdempotencyKey | None,
    keys: Sequence[Key],
    specs: Sequence[JobSpec],
    decide: DecideKeyed[A],
    settings: OrchestratorSettings,
    forecast: KeyForecast | None = None,
) -> Applied[A] | Repeated:
    """Commit what `decide` returns, with the unique keys of these jobs.

    The jobs that have these keys are committed as well.
    """
    parts = {id(spec): unique_part(spec) for spec in specs if spec.unique is not None}
    unique, wanted = list(dict.fromkeys(map(key_of, parts.values()))), list[str]()
    known: list[Record | None] = []
    if unique and forecast is not None and forecast.are_new:
        known = [*(await engine.load(keys) if keys else ()), *[None] * len(unique)]
    for _ in range(ROUNDS):
        last: list[KeyedSubmission] = []

        def decide_all(
            found: Sequence[Record | None],
            now: datetime,
            wanted: Sequence[str] = tuple(wanted),
            last: list[KeyedSubmission] = last,
        ) -> Decision[A]:
            records = iter(found)
            first = [next(records) for _ in keys]
            held = {key.id: next(records) for key in unique}
            keyed = KeyedSubmission(held, dict(zip(wanted, records, strict=True)), now, settings, parts)
            last[:] = [keyed]
            if forecast is not None and unique:
                forecast.are_new = not any(held.values())
            decision = decide(first, keyed, now)
            return Decision(decision.answer) if keyed.missing else decision

        jobs = [Key(JOB.name, name) for name in wanted]
        applied = await engine.apply_once(idempotency_key, [*keys, *unique, *jobs], decide_all, known=known)
        known = []
        if isinstance(applied, Repeated) or not last[0].missing:
            return applied
        wanted += sorted(last[0].missing)
    raise contended(unique, None, ROUNDS)


class UniqueKeys:
    """Removes records of keys that no job needs any more, a bounded number at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cursor = ""

    async def free(self, *, limit: int = 500) -> int:
        """Free keys whose jobs have ended, and prune free ones.

        Return how many were freed. Each call continues where the one before ended, so that keys of jobs that
        live long hold up no others.
        """
        store, now = self._engine.store, await self._engine.clock.now()
        query = Query(
            kind=UNIQUE_KEY.name,
            states=(HELD,),
            until=now - FREED_AFTER,
            newest_first=False,
            cursor=self._cursor,
            limit=min(limit, 1_000),
        )
        page = await store.find(query)
        self._cursor = page.cursor
        names = sorted({job_id for record in page.records for job_id in KEYS.body_of(record).jobs})
        jobs: dict[str, Record | None] = {}
        for start in range(0, len(names), limit):
            some = names[start : start + limit]
            jobs |= zip(some, await store.load([Key(JOB.name, name) for name in some]), strict=True)
        over = [record for record in page.records if _is_over(record, jobs, now)]
        await apply_all(self._engine, [Item(record.key, freed, record) for record in over])
        await store.prune(kind=UNIQUE_KEY.name, states=(FREE,), older_than=FREED_AFTER, limit=limit)
        return len(over)


def _is_over(record: Record, jobs: Mapping[str, Record | None], now: datetime) -> bool:
    """Return whether no job of a key counts any more, by any rule."""
    body = KEYS.body_of(record)
    kept = Counts(ANY_STATE, body.keep_s)
    return not any(kept.counts(jobs.get(job_id), now) for job_id in body.jobs)


def freed(record: Record | None, now: datetime, commit_id: str) -> Decision[None]:
    """Return a key without a job as free, if no job has taken it since."""
    if record is None or record.state != HELD:
        return Decision(None)
    entity = KEYS.of(record, now, KeyBody(key=KEYS.body_of(record).key))
    entity.must(free)
    return Decision(None, Commit(changes=(entity.change(commit_id=commit_id, actor="clock"),)))
