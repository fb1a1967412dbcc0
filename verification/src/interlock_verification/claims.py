"""Claims about jobs, as data: each is a name, a sentence, and a predicate over one kind of fact.

The model checker, the judge of the worlds and the judge of chaos use the same claims. They differ in the
facts. Claims that only worlds check are in `worlds.claims`.

    VALUE_CLAIMS       a job's current value (`DecodedJob`): model and worlds at every write, chaos at the end
    STEP_CLAIMS        one step of a job (`Taken`): model and worlds
    SUBMISSION_CLAIMS  the jobs of one request (`ClientRequest`): all three
    FINAL_CLAIMS       the same at the end: chaos
    GRANT_CLAIMS       a new lease (`NewLease`): worlds
    HEARD_CLAIMS       a message accepted under a lease (`Accepted`): worlds, chaos
    REPORT_CLAIMS      the answer to a late message (`Reported`): worlds, chaos
    END_CLAIMS         how often a job has ended (`EndedJob`): worlds, chaos
    SETTLES            a job has no open work (`unsettled`): all three, at the end
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

import msgspec

from interlock.lifecycles import attempt, job, lease
from interlock.lifecycles.attempt import ATTEMPT
from interlock.lifecycles.job import JOB, JobState
from interlock.lifecycles.lease import LEASE
from interlock.lifecycles.owners import Owner
from interlock.store.records import Record, StepLine
from interlock.systems.orchestrator.body import AttemptBody, JobBody, decode_body
from interlock.systems.orchestrator.failures import DEFAULT_LOSSES, FailureClass
from interlock_verification.models.job_values import NOW, Value
from interlock_verification.models.plan import JobPlan, ModelPlan

F = TypeVar("F")


class FactClaim(msgspec.Struct, Generic[F]):
    """A claim about every fact of one type."""

    name: str
    """Its name in tests and tables, such as `run.needs`."""
    sentence: str
    """The property, as reports print it."""
    about: type[F]
    holds: Callable[[F], bool]


def broken(claims: Iterable[FactClaim[F]], fact: F) -> Iterator[str]:
    """Return the sentences of the claims that do not hold of a fact."""
    return (claim.sentence for claim in claims if not claim.holds(fact))


class DecodedJob(NamedTuple):
    """A decoded value of a job."""

    state: JobState
    body: JobBody
    value: Value | Record
    """The indexed columns: when it is ready, and its next deadline."""
    plan: JobPlan
    releases: int
    fails: int
    """Number of possible failure classes."""


class Taken(NamedTuple):
    """A decoded step."""

    before: DecodedJob
    after: DecodedJob
    lines: Sequence[StepLine]
    cause: str
    """The cause: runner, clock, user or orchestrator."""
    token: tuple[int, int] | None
    """The attempt of a runner's message."""
    accepted: bool
    """Whether a runner's message was accepted and changed the job."""
    message: str
    """The runner's message: ACK, BEAT, SUCCESS, FAILURE, RELEASE or STOPPED."""
    now: datetime = NOW
    """The time; constant in a model."""
    journalled: bool = True
    """Whether the step has a journal entry; a renewal leaves none."""


def look_at(value: Value, plan: ModelPlan, number: int) -> DecodedJob:
    """Return the decoded value of a numbered job."""
    return DecodedJob(
        JobState(value.state), decode_body(value.body), value, plan.jobs[number], plan.releases, plan.fails
    )


def look_at_record(record: Record, releases: int, *, default_losses: int = DEFAULT_LOSSES) -> DecodedJob:
    """Return a decoded job with its releases and the default of losses."""
    body = decode_body(record.body)
    losses = default_losses if body.losses_allowed is None else body.losses_allowed
    plan = JobPlan(
        shards=body.data.worker_count, retries=_most_retries(body), losses=losses, attempt_timeout=1
    )
    return DecodedJob(JobState(record.state), body, record, plan, releases, len(FailureClass))


def gives_back(lines: Sequence[StepLine]) -> bool:
    """Return whether a worker releases unfinished work in this step."""
    return any(line.event == "release" for line in lines)


def _most_retries(body: JobBody) -> int:
    """Return the maximum number of retries of one failure class."""
    own = [rule.retries for rule in body.retry.values()]
    return max([3, body.retries or 0, *own])


# Claims about every value


def one_live_lease(seen: DecodedJob) -> bool:
    """Return whether a shard has at most a live lease on its newest attempt."""
    for shard in _shards(seen):
        mine = [one for one in seen.body.attempts if one.shard == shard]
        live = [one for one in mine if _live(one)]
        if len(live) > 1 or (live and live[0] is not mine[-1]):
            return False
    return True


def lease_and_attempt_agree(seen: DecodedJob) -> bool:
    """Return whether attempts have live leases exactly as required."""
    for one in seen.body.attempts:
        held = one.lease.state if one.lease is not None else None
        if one.state is attempt.LEASED and held is not lease.GRANTED:
            return False
        if one.state in (*attempt.EXECUTING, attempt.CANCEL_REQUESTED) and held is not lease.ACTIVE:
            return False
        if one.state in (*attempt.UNLEASED, *attempt.ENDED) and _live(one):
            return False
    return True


def bounded(seen: DecodedJob) -> bool:
    """Return whether attempts and losses are within the limits of the job."""
    plan = seen.plan
    classes = seen.fails + (plan.attempt_timeout is not None)  # each failure class has its own budget
    most = plan.shards * (1 + classes * plan.retries) + plan.losses + seen.releases
    return len(seen.body.attempts) <= most and seen.body.losses <= plan.losses + 1


def ended_is_over(seen: DecodedJob) -> bool:
    """Return whether an ended job has only attempts that ended or stop."""
    if seen.state not in job.ENDED:
        return True
    left = [one.state for one in seen.body.attempts if one.state not in attempt.ENDED]
    if seen.state is job.FAILED:
        return all(state is attempt.CANCEL_REQUESTED for state in left)
    return not left


def completed_is_all_shards(seen: DecodedJob) -> bool:
    """Return whether a job is COMPLETED exactly if all shards succeeded."""
    done = {one.shard for one in seen.body.attempts if one.state is attempt.SUCCEEDED}
    return (seen.state is job.COMPLETED) == (done == set(_shards(seen)))


def goes_on(seen: DecodedJob) -> bool:
    """Return whether each shard can proceed, or the job ends or is stopped."""
    if seen.state in job.ENDED or seen.state is job.SUBMITTED:
        return True
    if seen.body.data.stop_reason:
        return seen.body.active > 0
    last = {one.shard: one.state for one in seen.body.attempts}
    return set(last) == set(_shards(seen)) and all(
        state not in attempt.ENDED or state is attempt.SUCCEEDED for state in last.values()
    )


def tables_hold(seen: DecodedJob) -> bool:
    """Return whether the invariants of the tables hold."""
    if JOB.broken(seen.state, seen.body.data):
        return False
    for one in seen.body.attempts:
        if ATTEMPT.broken(one.state, one.data):
            return False
        if one.lease is not None and LEASE.broken(one.lease.state, one.lease.data):
            return False
    return True


def columns_agree(seen: DecodedJob) -> bool:
    """Return whether the columns ready_at and deadline_at agree with the body."""
    timers = [seen.body.timer_at, *(one.timer_at for one in seen.body.attempts)]
    timers += [one.lease.timer_at for one in seen.body.attempts if one.lease is not None]
    running = [timer for timer in timers if timer is not None]
    return _ready_time_is_stored(seen) and seen.value.deadline_at == min(running, default=None)


def _ready_time_is_stored(seen: DecodedJob) -> bool:
    waiting = [one for one in seen.body.attempts if one.state in attempt.UNLEASED]
    column, limits = seen.value.ready_at, seen.body.limits
    if limits is not None and limits.since is None:
        return column is None  # it is not admitted
    if column is None and any(one.prompt for one in waiting):
        return False
    # The ready time of an attempt that is ready since its job was created is in the column.
    ready = [at for one in waiting if (at := column if one.prompt else one.ready_at) is not None]
    if limits is not None and limits.since is not None:
        ready = [max(at, limits.since) for at in ready]
    return column == min(ready, default=None)


def timers_run(seen: DecodedJob) -> bool:
    """Return whether timers run exactly in states with a deadline.

    Waiting attempts have a ready time, too.
    """
    stopping = bool(seen.body.data.stop_reason)
    waits = seen.state is job.PENDING and seen.body.not_after is not None
    if not stopping and (seen.body.timer_at is not None) != (seen.state is job.RUNNING or waits):
        return False
    for one in seen.body.attempts:
        timed = ATTEMPT.table.entry(one.state).within is not None
        if timed != (one.timer_at is not None):
            return False
        ready = one.prompt or one.ready_at is not None
        if one.state in attempt.UNLEASED and not ready and not _is_held(seen, one):
            return False
    return True


def expired_never_began(seen: DecodedJob) -> bool:
    """Return whether an expired job was never started."""
    if seen.body.failure is None or seen.body.failure.failure_class is not FailureClass.EXPIRED:
        return True
    return seen.state is job.FAILED and seen.body.data.started_at is None


def _is_held(seen: DecodedJob, one: AttemptBody) -> bool:
    """Return whether an attempt waits for its run, children or tree place."""
    if one.state is not attempt.CREATED:
        return False
    return seen.body.run is not None or seen.body.tree is not None or one.waits or bool(one.awaits)


VALUE_CLAIMS: Sequence[FactClaim[DecodedJob]] = (
    FactClaim("job.one_live_lease", "at most one live lease at each shard", DecodedJob, one_live_lease),
    FactClaim(
        "job.attempts_match_leases", "an attempt and its lease agree", DecodedJob, lease_and_attempt_agree
    ),
    FactClaim("job.bounded", "attempts and losses are bounded", DecodedJob, bounded),
    FactClaim(
        "job.ended_is_over", "a job that has ended has nothing waiting or active", DecodedJob, ended_is_over
    ),
    FactClaim(
        "job.completed_is_all_shards",
        "a job is COMPLETED exactly when each shard has succeeded",
        DecodedJob,
        completed_is_all_shards,
    ),
    FactClaim("job.progresses", "a job that has not ended can still progress", DecodedJob, goes_on),
    FactClaim("job.tables_hold", "the claims of the tables hold", DecodedJob, tables_hold),
    FactClaim("job.columns_agree", "the columns agree with the body", DecodedJob, columns_agree),
    FactClaim("job.timers_run", "a timer runs exactly where a table says so", DecodedJob, timers_run),
    FactClaim(
        "job.only_unstarted_expires",
        "only a job that no worker has started expires",
        DecodedJob,
        expired_never_began,
    ),
)


# Claims about every step


def journal_replays(step: Taken) -> bool:
    """Return whether the journalled rows lead from `before` to `after`."""
    if not step.journalled:
        return True
    states = _states(step.before)
    for line in step.lines:
        key = (line.machine, line.entity)
        if states.get(key, _INITIAL[line.machine]) != line.source:
            return False
        states[key] = line.target
    after = _states(step.after)
    return all(states.get(key, _INITIAL[key[0]]) == state for key, state in after.items())


def ends_absorb(step: Taken) -> bool:
    """Return whether terminal states are kept, unless folded."""
    ends = {JOB.name: JOB.terminal, ATTEMPT.name: ATTEMPT.terminal, LEASE.name: LEASE.terminal}
    after, folds = _states(step.after), step.after.body.folded is not None
    return all(
        after.get(k, state if folds else None) == state
        for k, state in _states(step.before).items()
        if state in ends[k[0]]
    )


def only_the_live_lease_is_accepted(step: Taken) -> bool:
    """Return whether accepted messages came under a live, unexpired lease."""
    if not step.accepted or step.token is None:
        return True
    held = next((o.lease for o in step.before.body.attempts if (o.shard, o.index) == step.token), None)
    return held is not None and held.state in lease.LIVE and held.data.expires_at > step.now


def success_is_reported(step: Taken) -> bool:
    """Return whether attempts succeed only by their runner's report."""
    was = {one.name: one.state for one in step.before.body.attempts}
    new = [
        (one.shard, one.index)
        for one in step.after.body.attempts
        if one.state is attempt.SUCCEEDED and was.get(one.name) is not attempt.SUCCEEDED
    ]
    return not new or (step.message == "SUCCESS" and new == [step.token])


def signs_of_life_are_noted(step: Taken) -> bool:
    """Return whether an attempt leaves STARTING with its first heartbeat."""
    if not step.accepted or step.message != "BEAT":
        return True
    spoken_of = (one for one in step.after.body.attempts if (one.shard, one.index) == step.token)
    return all(one.state is not attempt.STARTING for one in spoken_of)


def owners_act(step: Taken) -> bool:
    """Return whether rows of the runner are taken only by the runner."""
    return (
        not step.journalled
        or step.cause == "runner"
        or all(line.owner != Owner.RUNNER for line in step.lines)
    )


def swept_is_settled(step: Taken) -> bool:
    """Return whether no deadline is overdue after a sweep."""
    deadline = step.after.value.deadline_at
    return step.cause != "clock" or deadline is None or deadline > step.now


def starts_in_time(step: Taken) -> bool:
    """Return whether a job does not begin after its `not_after`."""
    until, began = step.before.body.not_after, step.after.state is job.RUNNING
    return step.before.state is not job.PENDING or until is None or not began or until > step.now


def snoozes(step: Taken) -> bool:
    """Return whether a snooze waits for its time and costs no try or loss."""
    if not gives_back(step.lines) or step.token is None:
        return True
    given = [one for one in step.after.body.attempts if (one.shard, one.index) == step.token]
    if not given or given[0].snoozed_until is None or step.after.body.data.stop_reason:
        return True
    following = [one for one in step.after.body.attempts if one.shard == given[0].shard][-1]
    waits = following.ready_at is not None and following.ready_at >= given[0].snoozed_until
    return (
        waits
        and following.index == given[0].index + 1
        and given[0].failure is None
        and step.after.body.losses == step.before.body.losses
    )


def across_holds(step: Taken) -> bool:
    """Return whether the step invariants of the tables hold."""
    before, after = step.before, step.after
    if JOB.broken_across(before.state, before.body.data, after.state, after.body.data):
        return False
    was = {one.name: one for one in before.body.attempts}
    return not any(
        ATTEMPT.broken_across(was[one.name].state, was[one.name].data, one.state, one.data)
        for one in after.body.attempts
        if one.name in was
    )


STEP_CLAIMS: Sequence[FactClaim[Taken]] = (
    FactClaim("step.journal_replays", "the journal replays to the record", Taken, journal_replays),
    FactClaim("step.ends_absorb", "a terminal record never changes", Taken, ends_absorb),
    FactClaim(
        "step.only_live_lease",
        "only reports under the live lease are accepted",
        Taken,
        only_the_live_lease_is_accepted,
    ),
    FactClaim(
        "step.success_is_reported",
        "a success comes only from an accepted completion",
        Taken,
        success_is_reported,
    ),
    FactClaim("step.heartbeat_runs", "a heartbeat makes it RUNNING", Taken, signs_of_life_are_noted),
    FactClaim("step.owners_act", "only the runner takes the rows that it owns", Taken, owners_act),
    FactClaim("step.sweep_settles", "a sweep leaves nothing overdue", Taken, swept_is_settled),
    FactClaim("step.starts_in_time", "no job is started after its deadline", Taken, starts_in_time),
    FactClaim("step.snoozes", "a snoozed job waits, which costs no try", Taken, snoozes),
    FactClaim("step.tables_hold", "the claims of the tables about each step hold", Taken, across_holds),
)

STORE_CLAIM = "the store accepts every decision"
BATCH_CLAIM = "a job is decided in a batch as it is decided alone"
GIVEN_ONCE = "an attempt is granted to one worker only"
ASKED_FOR = "a job is canceled only after a request or a timeout"
IN_TIME = "no report is committed after the end of its lease"


# Claims about clients, workers and the journal


class ClientRequest(NamedTuple):
    """One request of a client, and its jobs."""

    jobs: Sequence[str]
    acknowledged: str | None = None
    """The acknowledged job; None without a response."""


class NewLease(NamedTuple):
    """A new lease."""

    fence: int
    before: int
    """The fence of the previous grant of the same shard; 0 for the first."""


class Accepted(NamedTuple):
    """A message accepted under a lease."""

    holder: str
    speaker: str


class Reported(NamedTuple):
    """The answer to a message under a lease."""

    late: bool
    """Whether the lease had ended."""
    accepted: bool
    journalled: bool
    """Whether the journal has the refusal."""


class EndedJob(NamedTuple):
    """A job that has ended."""

    look: DecodedJob
    successes: Mapping[int, int]
    """Number of successes of each shard."""
    completions: int
    """Number of transitions of the job to COMPLETED."""


def finished_once(ended: EndedJob) -> bool:
    """Return whether no shard succeeded twice, and all did if COMPLETED."""
    counts = ended.successes.values()
    whole = ended.look.state is not job.COMPLETED or sum(counts) == len(_shards(ended.look))
    return whole and all(count <= 1 for count in counts)


DONE_ONCE = "a request is executed once"
KEPT = "an acknowledged submission is stored"
TOLD = "the client learns of every job that it has submitted"
FENCE = "the fence grows with every grant of a shard"
HOLDER = "an accepted report was sent by the holder of its lease"
UNHEARD = "a late report is not accepted"
RECORDED = "a late report is refused and journalled"
FINISHED_ONCE = "a shard of a job succeeds once"
COMPLETED_ONCE = "a job is completed once"
SETTLES = "every job ends, and no lease on it is left"

SUBMISSION_CLAIMS: Sequence[FactClaim[ClientRequest]] = (
    FactClaim("request.done_once", DONE_ONCE, ClientRequest, lambda made: len(set(made.jobs)) <= 1),
)
FINAL_CLAIMS: Sequence[FactClaim[ClientRequest]] = (
    FactClaim(
        "request.stored",
        KEPT,
        ClientRequest,
        lambda made: made.acknowledged is None or made.acknowledged in made.jobs,
    ),
    FactClaim(
        "request.answered", TOLD, ClientRequest, lambda made: made.acknowledged is not None or not made.jobs
    ),
)
GRANT_CLAIMS: Sequence[FactClaim[NewLease]] = (
    FactClaim("lease.fence_grows", FENCE, NewLease, lambda granted: granted.fence > granted.before),
)
HEARD_CLAIMS: Sequence[FactClaim[Accepted]] = (
    FactClaim("report.from_holder", HOLDER, Accepted, lambda accepted: accepted.speaker == accepted.holder),
)
REPORT_CLAIMS: Sequence[FactClaim[Reported]] = (
    FactClaim(
        "report.late_is_refused",
        UNHEARD,
        Reported,
        lambda reported: not (reported.late and reported.accepted),
    ),
    FactClaim(
        "report.refusal_is_journalled",
        RECORDED,
        Reported,
        lambda reported: reported.accepted or reported.journalled,
    ),
)
END_CLAIMS: Sequence[FactClaim[EndedJob]] = (
    FactClaim("job.shard_succeeds_once", FINISHED_ONCE, EndedJob, finished_once),
    FactClaim(
        "job.completed_once",
        COMPLETED_ONCE,
        EndedJob,
        lambda ended: ended.completions == (ended.look.state is job.COMPLETED),
    ),
)


def unsettled(seen: DecodedJob) -> bool:
    """Return whether the job has open work."""
    return seen.state not in job.ENDED or any(_live(one) for one in seen.body.attempts)


def stopping(seen: DecodedJob) -> bool:
    """Return whether the job is being stopped."""
    return bool(seen.body.data.stop_reason) and seen.state not in job.ENDED


def by_cancel(seen: DecodedJob) -> bool:
    """Return whether it was canceled by a request, not by a timeout."""
    return seen.state is job.CANCELED and seen.body.data.stop_reason == "cancel"


def overdue(value: Value) -> bool:
    """Return whether an expired timer has not been handled."""
    return value.deadline_at is not None and value.deadline_at <= NOW


_INITIAL = {JOB.name: JOB.initial, ATTEMPT.name: ATTEMPT.initial, LEASE.name: LEASE.initial}


def _states(seen: DecodedJob) -> dict[tuple[str, str], str]:
    return dict(_each_state(seen))


def _each_state(seen: DecodedJob) -> Iterator[tuple[tuple[str, str], str]]:
    yield (JOB.name, ""), seen.state
    for one in seen.body.attempts:
        yield (ATTEMPT.name, one.name), one.state
        if one.lease is not None:
            yield (LEASE.name, one.name), one.lease.state


def _shards(seen: DecodedJob) -> range:
    return range(1, seen.body.data.worker_count + 1)


def _live(one: AttemptBody) -> bool:
    return one.lease is not None and one.lease.state in lease.LIVE
