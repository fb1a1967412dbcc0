"""The broken guarantees, derived from the journal.

Submissions, successes and late reports are checked with the claims of `interlock_verification.claims`,
applied to the final journal and records. In addition:

    every job completes    no submitted job fails or is canceled
    recovered in time      the jobs of a killed worker were claimed by others within the time to live of a
                           lease and 2 s; workers with one server were heard again 5 s after its end

Time that the machine withheld is reported with the recovery time and subtracted: the time in which the
restarted server was runnable and had to wait; after the death of a worker, once its leases had expired, the
time for which even the least delayed member had to wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from interlock.lifecycles import attempt, job
from interlock_verification.chaos.system.clients import TOO_LATE, Late
from interlock_verification.chaos.system.fault_injector import FaultLog, KillWindow
from interlock_verification.chaos.system.fleet import DURATIONS, ELSEWHERE
from interlock_verification.chaos.system.history import JobHistory, KeptJob, Try
from interlock_verification.chaos.system.lag import Lag
from interlock_verification.claims import (
    END_CLAIMS,
    FINAL_CLAIMS,
    HEARD_CLAIMS,
    REPORT_CLAIMS,
    SETTLES,
    SUBMISSION_CLAIMS,
    VALUE_CLAIMS,
    Accepted,
    ClientRequest,
    EndedJob,
    FactClaim,
    Reported,
    broken,
    unsettled,
)

WORKER_BOUND_S = DURATIONS.lease_ttl_s + 2.0
SERVER_BOUND_S = 5.0
F = TypeVar("F")


class Took(msgspec.Struct, frozen=True):
    """The duration of one recovery."""

    death: KillWindow
    seconds: float
    withheld_s: float = 0.0
    """Measured scheduling delay, part of the duration."""

    @property
    def own_s(self) -> float:
        """The duration without the scheduling delay."""
        return self.seconds - self.withheld_s


class Recovery(msgspec.Struct):
    """Recovery times after each death; None if it never recovered."""

    of: str
    bound_s: float
    took: list[Took | None] = []
    not_judged: int = 0
    """Deaths during another fault, which are not judged."""

    def sentences(self) -> Iterator[str]:
        """Yield the recoveries that took too long."""
        if not self.took:
            yield f"no {self.of} could be timed"
        for took in self.took:
            if took is None:
                yield f"the {self.of} was never recovered from"
            elif took.own_s > self.bound_s:
                yield (
                    f"it took {took.seconds:.2f} s to recover from the {self.of}, of which the machine "
                    f"withheld {took.withheld_s:.2f} s; {self.bound_s:g} s are allowed "
                    f"({took.death.name} at {took.death.before:%H:%M:%S.%f})"
                )

    def remark(self) -> str:
        """Return a summary."""
        known = [took for took in self.took if took is not None]
        if not known:
            return f"no {self.of} was timed"
        seconds = sorted(took.seconds for took in known)
        middle, slowest = seconds[len(known) // 2], seconds[-1]
        excused = sum(took.own_s <= self.bound_s < took.seconds for took in known)
        return (
            f"recovery after the {self.of}: {len(known)} timed, {middle:.2f} s in the middle, "
            f"{slowest:.2f} s at most; {max(took.own_s for took in known):.2f} s at most without the time "
            f"that the machine withheld ({self.bound_s:g} s allowed; {excused} were longer by the clock); "
            f"beside {self.not_judged} other deaths something else went on"
        )


def broken_promises(
    history: JobHistory, acknowledged: Mapping[str, str], late: Sequence[Late]
) -> Iterator[str]:
    """Yield all broken guarantees except the times."""
    for fault in history.audit.faults:
        yield f"audit: {fault.id} version {fault.version}: {fault.sentence}"
    yield from _of_submissions(history, acknowledged)
    for kept in history.jobs:
        yield from _of_job(history, kept)
    for report in late:
        yield from _of_late_report(history, report)


def _of_submissions(history: JobHistory, acknowledged: Mapping[str, str]) -> Iterator[str]:
    made: dict[str, list[str]] = {intent: [] for intent in acknowledged}
    for kept in history.jobs:
        made.setdefault(kept.intent, []).append(kept.id)
    for intent, jobs in made.items():
        submission = ClientRequest(jobs, acknowledged.get(intent))
        yield from _broken(SUBMISSION_CLAIMS, submission, f"{intent} was made {len(jobs)} times")
        there = " and ".join(jobs) or "not there"
        sentence = f"{intent} was acknowledged as {submission.acknowledged}, and is {there}"
        yield from _broken(FINAL_CLAIMS, submission, sentence)


def _of_job(history: JobHistory, kept: KeptJob) -> Iterator[str]:
    what = f"{kept.id} ({kept.intent}) is {kept.state}"
    yield from _broken(VALUE_CLAIMS, kept.look, what)
    if unsettled(kept.look):
        yield f"{SETTLES}: {what}"
    elif kept.state != job.COMPLETED:
        yield f"every job completes: {what}"
    succeeded = [one for one in history.by_job[kept.id] if one.state == attempt.SUCCEEDED]
    completions = history.completed[kept.id]
    ended = EndedJob(kept.look, Counter(int(one.shard) for one in succeeded), completions)
    description = f"{kept.id} has {len(succeeded)} successes, and was completed {completions} times"
    yield from _broken(END_CLAIMS, ended, description)
    for one in succeeded:
        description = f"{kept.id} was given to {one.runner_id}, and its success is that of {one.closed_by}"
        yield from _broken(HEARD_CLAIMS, Accepted(one.runner_id, one.closed_by), description)
    if kept.result == bytes(TOO_LATE):
        believed = Reported(late=True, accepted=True, journalled=False)
        yield from _broken(REPORT_CLAIMS, believed, f"it is the result of {kept.id}")


def _of_late_report(history: JobHistory, report: Late) -> Iterator[str]:
    refusals = history.refusals.get((report.job_id, report.runner_id), [])
    journalled = any(description.startswith("complete:") for description in refusals)
    answered = Reported(late=True, accepted=report.believed, journalled=journalled)
    yield from _broken(REPORT_CLAIMS, answered, f"what {report.runner_id} said about {report.job_id}")


def _broken(claims: Iterable[FactClaim[F]], fact: F, description: str) -> Iterator[str]:
    return (f"{claim}: {description}" for claim in broken(claims, fact))


def recoveries(
    history: JobHistory, fault_log: FaultLog, people: Mapping[str, tuple[str, ...]]
) -> tuple[Recovery, Recovery]:
    """Return the recoveries of workers and of servers.

    `people` are the workers with a single server.
    """
    workers = Recovery("death of a worker", WORKER_BOUND_S, [])
    servers = Recovery("death of a server", SERVER_BOUND_S, [])
    for death in fault_log.deaths:
        recovery = servers if death.serves else workers
        if not _judged(death, recovery.bound_s, fault_log):
            recovery.not_judged += 1
        elif death.serves:
            recovery.took.append(_recovery_of(history, death, people[death.name], fault_log.lag))
        else:
            recovery.took += [_taken_up(death, again, fault_log.lag) for again in _reclaims(history, death)]
    return workers, servers


def _recovery_of(history: JobHistory, death: KillWindow, people: tuple[str, ...], lag: Lag) -> Took | None:
    """Return when the server heard from workers again.

    What held them up is the server's scheduling delay.
    """
    answered = history.next_message(people, death.after)
    if answered is None:
        return None
    return Took(death, _seconds(death.before, answered), lag.of(death.name, death.before, answered))


def _taken_up(death: KillWindow, again: datetime | None, lag: Lag) -> Took | None:
    """Return when the jobs were claimed again.

    Until the leases expire no delay counts.
    """
    if again is None:
        return None
    lapsed = death.before + timedelta(seconds=DURATIONS.lease_ttl_s)
    return Took(death, _seconds(death.before, again), lag.of_all(lapsed, again))


def _reclaims(history: JobHistory, death: KillWindow) -> Iterator[datetime | None]:
    """Yield when each job of the dead worker was claimed again.

    Only jobs that are open to any worker count.
    """
    for one in history.tries.values():
        if one.runner_id != death.runner_id or one.granted_at > death.before:
            continue
        if one.ended_at is not None and one.ended_at <= death.after:
            continue
        if one.state == attempt.STALE and history.queues.get(one.job_id) != ELSEWHERE:
            later = [other.granted_at for other in _others(history.by_job[one.job_id], one)]
            yield min(later, default=None)


def _others(tries: Iterable[Try], one: Try) -> Iterator[Try]:
    for other in tries:
        if other.shard == one.shard and other.granted_at > one.granted_at:
            yield other


def _judged(death: KillWindow, bound_s: float, fault_log: FaultLog) -> bool:
    """Return whether only the death itself could have delayed recovery."""
    until = death.before + timedelta(seconds=bound_s)
    if any(begin < until and end > death.before for begin, end in fault_log.disturbances):
        return False
    return _has_time(death, fault_log, until) if death.serves else bool(death.runner_id)


def _has_time(death: KillWindow, fault_log: FaultLog, until: datetime) -> bool:
    """Return whether the server was not killed again.

    Clients have to be still active, too.
    """
    again = any(
        other.name == death.name and death.before < other.before < until for other in fault_log.deaths
    )
    return not again and fault_log.over_at is not None and until <= fault_log.over_at


def _seconds(begin: datetime, end: datetime) -> float:
    return (end - begin).total_seconds()
