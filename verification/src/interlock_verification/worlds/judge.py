"""The judge of a world: it observes every write and every answer, and reports facts about jobs.

Facts about other records come from the judges of their systems. `ClaimWatcher` checks the claims.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import msgspec

from interlock.engine.outbox import MESSAGE
from interlock.lifecycles import attempt, job, lease
from interlock.lifecycles.attempt import ATTEMPT
from interlock.lifecycles.job import JOB
from interlock.lifecycles.lease import LEASE
from interlock.lifecycles.worker import WORKER
from interlock.lifecycles.workload import WORKLOAD
from interlock.store.records import Key, Note, Record
from interlock.systems.fleet.spec import TASK
from interlock.systems.orchestrator.body import AttemptBody, given_of, place_in_run
from interlock.systems.orchestrator.failures import FailureClass
from interlock.systems.orchestrator.tokens import read_token
from interlock.systems.quarantine import STANDING
from interlock.wire.runner import (
    Ack,
    Answer,
    CancelAck,
    Complete,
    Grant,
    Heard,
    Heartbeat,
    Message,
    NotHeard,
    Release,
    Stale,
    StaleCode,
    Succeeded,
)
from interlock_verification.claims import (
    Accepted,
    ClientRequest,
    DecodedJob,
    EndedJob,
    NewLease,
    Reported,
    Taken,
    gives_back,
    look_at_record,
    unsettled,
)
from interlock_verification.required_events import REQUIRED_EVENTS
from interlock_verification.worlds.claims.jobs import CanceledJob, RepeatedReport
from interlock_verification.worlds.judge_fleet import FleetJudge, job_of
from interlock_verification.worlds.judge_keys import KeyJudge
from interlock_verification.worlds.judge_limits import LimitJudge
from interlock_verification.worlds.judge_runs import RunJudge
from interlock_verification.worlds.judge_signals import SignalJudge
from interlock_verification.worlds.judge_simulations import SimulationJudge
from interlock_verification.worlds.judge_trees import TreeJudge
from interlock_verification.worlds.judge_workers import WorkerJudge
from interlock_verification.worlds.network import ClaimWatcher, rows


def why(note: Note) -> str:
    """Return the reason of a step, after a comma."""
    return f", {note.reason}" if note.reason else ""


def named(entity: str) -> tuple[int, int]:
    """Return shard and index of an attempt, from its name."""
    shard, _, index = entity.partition(".")
    return int(shard), int(index)


def was_pending(look: DecodedJob | None) -> bool:
    """Return whether no attempt of it was granted before."""
    return look is None or look.state is job.PENDING


def attempts_of(look: DecodedJob) -> str:
    """Return its attempts, in a line."""
    return ", ".join(map(_attempt_in_words, look.body.attempts)) or "no attempts"


def _attempt_in_words(one: AttemptBody) -> str:
    return f"{one.name} {one.state}" + (f" ({one.lease.state})" if one.lease is not None else "")


_EVENTS = {
    Ack: "ack",
    Heartbeat: "heartbeat",
    Complete: "complete",
    CancelAck: "cancel_ack",
    Release: "release",
}
"""The lease event of each runner message."""
_SAYS = frozenset(_EVENTS.values())
_SUCCESS = "success"


class JobArguments(msgspec.Struct, frozen=True):
    """The submission number in a job's input."""

    number: int = -1


class Judge:
    """Observes the store and the answers, and reports facts about jobs."""

    def __init__(self, watcher: ClaimWatcher) -> None:
        self._watcher = watcher
        self.runs = RunJudge(watcher, self.state_of)
        self._looks: dict[str, DecodedJob] = {}
        """The latest value of each job, for comparison with its next write."""
        self._releases: dict[str, int] = {}
        self.made: dict[int, list[str]] = {}
        """The jobs of each submission."""
        self.ended: dict[str, str] = {}
        """The final state of each ended job."""
        self.cancels: set[str] = set()
        """Jobs whose cancellation was requested."""
        self.forgotten: set[str] = set()
        """Jobs with data lost in a fail-over, which no claim covers."""
        self._succeeded: set[tuple[str, int]] = set()
        self._written_off: set[tuple[str, str]] = set()
        """Attempts whose runners were declared lost by the supervisor."""
        self._reports: set[tuple[str, int, int, str]] = set()
        """Sent messages, by the attempt of their lease."""
        self._handed: set[tuple[str, int, int]] = set()
        """Attempts whose grant was answered."""
        self._refusals: set[tuple[str, str]] = set()
        self._reported: set[tuple[str, str]] = set()
        """Accepted reports, by lease and kind."""
        self._fences: dict[tuple[str, int], tuple[int, int]] = {}
        """The latest fence of each shard, and its attempt."""
        self.limits = LimitJudge(watcher)
        self.signals = SignalJudge(watcher, self.forgotten)
        self.trees = TreeJudge(watcher, self._looks.get, self.forgotten)
        self.keys = KeyJudge(watcher, self._looks.get, self.forgotten)
        self.workers = WorkerJudge(watcher, self._looks.items)
        self.simulations = SimulationJudge(watcher, self._looks.get)
        self.fleet = FleetJudge(watcher, self.forgotten)

    # Writes

    def written(self, before: Record | None, after: Record, note: Note | None, now: datetime) -> None:
        """Handle a changed record."""
        watcher = self._watcher
        watcher.record(
            f"{watcher.time():.6f} {after.kind} {after.id} {after.version} {after.state} ".encode()
        )
        watcher.record(after.body)
        if watcher.keeps_story and note is not None:
            description = f"{after.id}: {rows(note.steps)} ({note.actor or 'unknown'}{why(note)})"
            watcher.note(watcher.time(), description, job_of(after.id))
        if after.kind != JOB.name:
            self._other_written(after, now)
            return
        earlier = self._looks.get(after.id)
        look = self._look(after, note)
        self._values(look, after.id)
        if look.body.run is not None and look.state is job.RUNNING and was_pending(earlier):
            self.runs.begun(after.id, look.body)
        if earlier is not None and before is not None:
            self._step(earlier, look, note, after.id, now)
        elif before is None:
            self._created(after.id, look)
            self.keys.created(after, now)
        if look.state in job.ENDED:
            self._has_ended(after.id, look)
        self._looks[after.id] = look
        self.trees.job_written(after, earlier, look)
        if look.body.limits is not None:
            self.limits.job_written(after.id, look)

    def _other_written(self, after: Record, now: datetime) -> None:
        if after.kind == MESSAGE.name:
            self.trees.message_written(after)
            self.workers.message_written(after)
        elif after.kind == WORKER.name:
            self.workers.written(after, now)
        elif after.kind == STANDING.name:
            self.workers.standing_written(after, now)
        elif after.kind == WORKLOAD.name:
            self.fleet.written(after)
        else:
            self.simulations.written(after)
            self.runs.written(after)

    def refused(self, key: Key, note: Note) -> None:
        """Handle a journalled refusal."""
        self._watcher.record(f"refused {key.id} {note.refusal}".encode())
        self._watcher.note(self._watcher.time(), f"{key.id}: refused {note.refusal} ({note.actor})", key.id)
        self._refusals.add((key.id, note.actor))

    def lost(self, key: Key, back_to: Record | None) -> None:
        """Handle a record with writes lost in a fail-over."""
        if key.kind in (WORKER.name, STANDING.name):
            self.workers.lost(key.kind, key.id, back_to)
            return
        if key.kind == WORKLOAD.name:
            self.fleet.lost(key.id, back_to)
            return
        if key.kind != JOB.name:
            self.simulations.lost(key.kind, key.id, back_to)
            self.runs.lost(key.kind, key.id, back_to)
            return
        if (look := self._looks.get(key.id)) is not None:
            self._note_lost_write(key.id, look)
        self.forgotten.add(key.id)
        self._watcher.note(self._watcher.time(), f"{key.id}: the fail-over loses a write", key.id)
        self._looks.pop(key.id, None)
        self.ended.pop(key.id, None)
        self._succeeded -= {(key.id, shard) for shard in range(1, 11)}
        if back_to is not None:
            look = self._looks[key.id] = self._look(back_to, None)
            if look.state in job.ENDED:  # successes before an end are counted with the end
                self.ended[key.id] = str(look.state)
                succeeded = (one for one in look.body.attempts if one.state is attempt.SUCCEEDED)
                self._succeeded.update((key.id, one.shard) for one in succeeded)

    def _note_lost_write(self, job_id: str, look: DecodedJob) -> None:
        self.trees.lost(look, job_id)
        if look.body.limits is not None:
            self.limits.lost(job_id, look)
        if look.body.run is not None:
            self.runs.with_lost_writes.add(look.body.run.run_id)
        if look.body.simulation is not None:
            self.simulations.with_lost_writes.add(look.body.simulation.run_id)

    def gone(self, job_id: str) -> None:
        """Handle a pruned job: only its end is kept."""
        self.trees.gone(job_id)
        self.workers.gone(job_id)
        self._looks.pop(job_id, None)
        self._releases.pop(job_id, None)

    def state_of(self, job_id: str) -> str:
        """Return the state of a job; empty if unknown."""
        look = self._looks.get(job_id)
        return str(look.state) if look is not None else self.ended.get(job_id, "")

    def known(self) -> list[str]:
        """Return the existing jobs."""
        return list(self._looks)

    def was_lost(self, job_id: str, name: str) -> bool:
        """Return whether an attempt ended because its lease was not renewed.

        Its runner had not renewed it in time. A runner that the supervisor declared lost loses its leases
        early, without knowing it (0117).
        """
        if (job_id, name) in self._written_off:
            return False
        look = self._looks.get(job_id)
        attempts = look.body.attempts if look is not None else []
        return any(
            one.name == name and one.failure is not None and one.failure.failure_class is FailureClass.LOST
            for one in attempts
        )

    def unsettled(self) -> list[str]:
        """Return the jobs that have not ended, or have a live lease."""
        return [name for name, look in self._looks.items() if unsettled(look)]

    # Messages

    def message_sent(self, message: Message) -> None:
        """Record a message of a worker when it is sent.

        It may arrive at any time.
        """
        token = read_token(message.token)
        if token is None:
            return
        attempt = (token.job_id, token.shard, token.index)
        self._reports.add((*attempt, _EVENTS[type(message)]))
        if isinstance(message, Complete) and isinstance(message.outcome, Succeeded):
            self._reports.add((*attempt, _SUCCESS))

    def answered(self, message: Message, answer: Answer) -> None:
        """Check an answer of an orchestrator."""
        token = read_token(message.token)
        assert token is not None
        self._watcher.record(f"answer {token.job_id} {type(message).__name__} {answer}".encode())
        report = (message.token, f"{type(message).__name__} {message.sequence}")
        if isinstance(answer, Heard):
            self._reported.add(report)
            return
        ends = isinstance(message, Complete | CancelAck | Release)
        if ends:
            attempt_name = f"{token.shard}.{token.index}"
            before = report in self._reported and self._knows(token.job_id, attempt_name)
            repeated = RepeatedReport(type(message).__name__, answer, before)
            self._watcher.check(repeated, token.job_id)
        if isinstance(answer, NotHeard) or answer.code is not StaleCode.UNKNOWN_LEASE:
            journalled = (token.job_id, message.runner_id) in self._refusals
            refused = Reported(
                late=True, accepted=False, journalled=journalled or token.job_id in self.forgotten
            )
            self._watcher.check(refused, token.job_id, lambda: f"{type(message).__name__} → {answer}")
            if isinstance(answer, Stale) and isinstance(message, Complete):
                self._watcher.saw("a late report is refused")

    def _knows(self, job_id: str, name: str) -> bool:
        """Return whether the job exists and its attempt is known.

        The job has lost no data, and its attempt is not folded.
        """
        look = self._looks.get(job_id) if job_id not in self.forgotten else None
        return look is not None and any(one.name == name for one in look.body.attempts)

    def granted(self, grant: Grant) -> None:
        """Check a grant of an orchestrator."""
        self._watcher.record(f"grant {grant.job_id} {grant.shard} {grant.attempt} {grant.fence}".encode())
        self._handed.add((grant.job_id, grant.shard, grant.attempt))
        before, latest = self._fences.get((grant.job_id, grant.shard), (0, 0))
        if grant.attempt <= latest:
            return  # a repeated claim gets the same answer, or its answer was overtaken
        self._fences[grant.job_id, grant.shard] = grant.fence, grant.attempt
        self._watcher.check(
            NewLease(fence=grant.fence, before=before),
            grant.job_id,
            lambda: f"attempt {grant.shard}.{grant.attempt} has {grant.fence} after {before}",
        )

    # Claims

    def _look(self, record: Record, note: Note | None) -> DecodedJob:
        if note is not None and gives_back(note.steps):
            self._releases[record.id] = self._releases.get(record.id, 0) + 1
        return look_at_record(record, self._releases.get(record.id, 0))

    def _values(self, look: DecodedJob, job_id: str) -> None:
        self._watcher.check(look, job_id, lambda: f"{job_id} is {look.state}: {attempts_of(look)}")

    def _step(
        self, before: DecodedJob, after: DecodedJob, note: Note | None, job_id: str, now: datetime
    ) -> None:
        steps = note.steps if note is not None else ()
        lease_step = next(
            (s for s in steps if s.machine == LEASE.name and s.event in _SAYS and s.owner), None
        )
        grants = [s.entity for s in steps if s.machine == ATTEMPT.name and s.event == "grant"]
        for entity in grants:
            self.workers.granted(job_id, entity, now)
        granting = bool(grants)
        self._written_off.update((job_id, s.entity) for s in steps if s.event == lease.holder_lost.name)
        accepted_now = lease_step is not None and not granting and note is not None and "#" in note.actor
        token = named(lease_step.entity) if lease_step is not None and accepted_now else None
        report = ""
        if token is not None and lease_step is not None:
            report = "BEAT" if lease_step.event == "heartbeat" else ""
            if lease_step.event == "complete" and (job_id, *token, _SUCCESS) in self._reports:
                report = "SUCCESS"
        cause = "user"
        if note is not None:
            cause = "runner" if "#" in note.actor else "clock" if note.actor == "clock" else "user"
        event = lease_step.event if lease_step is not None and token is not None else "heartbeat"
        if event != "heartbeat" and token is not None:
            # A heartbeat may also be the renewal by a repeated claim.
            holder = f"the holder of {job_id} {token}"
            accepted = Accepted(holder, holder if self._was_sent(job_id, token, event) else "nobody")
            self._watcher.check(accepted, job_id, lambda: f"no report said so: {rows(steps)}")
        taken = Taken(
            before, after, steps, cause, token, accepted_now, report, now, journalled=note is not None
        )
        self._watcher.check(
            taken, job_id, lambda: f"{job_id}: {rows(steps)}; {attempts_of(before)} → {attempts_of(after)}"
        )

    def _was_sent(self, job_id: str, token: tuple[int, int], event: str) -> bool:
        """Return whether the holder sent the message.

        An undelivered grant is released by its server.
        """
        never_handed_out = event == "release" and (job_id, *token) not in self._handed
        return never_handed_out or (job_id, *token, event) in self._reports

    def _created(self, job_id: str, look: DecodedJob) -> None:
        if look.body.origin_job_id is not None or look.body.simulation is not None:
            return  # it was requested as a retry, or executes a requested run or simulation
        if look.body.run is not None:
            assert isinstance(look.value, Record)
            self.runs.made(job_id, look.body.run, place_in_run(look.body.run, look.value.given))
            return
        if look.body.task == TASK:
            self.fleet.made(job_id, _input_of(look))
            return
        number = msgspec.json.decode(_input_of(look), type=JobArguments).number
        jobs = self.made.setdefault(number, [])
        jobs.append(job_id)
        made = ClientRequest([one for one in jobs if one not in self.forgotten])
        self._watcher.check(made, job_id, lambda: f"submission {number} has become {' and '.join(jobs)}")

    def _has_ended(self, job_id: str, look: DecodedJob) -> None:
        if job_id in self.ended:
            return
        self.ended[job_id] = str(look.state)
        self._watcher.saw(f"job {look.state}")
        for event, occurred in REQUIRED_EVENTS.items():
            if occurred(look):
                self._watcher.saw(event)
        self._has_succeeded(job_id, look)
        reason = look.body.data.stop_reason
        if look.state is job.CANCELED:
            requested = self._was_requested(job_id, look, reason)
            self._watcher.check(CanceledJob(job_id, reason, requested), job_id)

    def _has_succeeded(self, job_id: str, look: DecodedJob) -> None:
        shards = [one.shard for one in look.body.attempts if one.state is attempt.SUCCEEDED]
        successes = Counter(shards)
        successes.update(shard for shard in successes.copy() if (job_id, shard) in self._succeeded)
        self._succeeded.update((job_id, shard) for shard in shards)
        ended = EndedJob(look, successes, completions=int(look.state is job.COMPLETED))
        self._watcher.check(ended, job_id, lambda: f"{job_id}, shards {sorted(successes)}")

    def _was_requested(self, job_id: str, look: DecodedJob, reason: str | None) -> bool:
        if look.body.run is not None:
            return job_id in self.cancels or self.runs.may_be_stopped(job_id, look.body, reason)
        match reason:
            case "cancel":
                return job_id in self.cancels or look.body.simulation is not None
            case "parent":
                assert isinstance(look.value, Record)
                parent = look.value.parent or ""
                return parent in self.cancels or parent in self.ended or self._is_stopping(parent)
            case "sibling":
                return look.body.tree is not None
            case "timeout":
                started = look.body.data.started_at
                return started is not None and look.body.job_timeout_s is not None
            case _:
                return False

    def _is_stopping(self, job_id: str) -> bool:
        look = self._looks.get(job_id)
        return look is not None and bool(look.body.data.stop_reason)


def _input_of(look: DecodedJob) -> msgspec.Raw:
    assert isinstance(look.value, Record)
    return given_of(look.value).input
