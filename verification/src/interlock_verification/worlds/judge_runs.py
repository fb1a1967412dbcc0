"""The judge of runs: it knows each run, its stored plan, and the jobs created from it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from interlock.lifecycles import job, run
from interlock.lifecycles.run import RUN, RunState
from interlock.store.records import Record
from interlock.systems.orchestrator.body import JobBody, RunPart
from interlock.systems.runs.body import RunBody, decode_run
from interlock.systems.runs.plans import PLAN, PlanPiece
from interlock_verification.claims import ClientRequest
from interlock_verification.worlds.claims.runs import (
    CreatedRunJob,
    RunOutcome,
    RunTransition,
    RunWritten,
    StartedRunJob,
)
from interlock_verification.worlds.network import ClaimWatcher


class JudgedRun(msgspec.Struct):
    """A planned run, and its created jobs."""

    body: RunBody
    state: RunState
    required: dict[str, bool] = msgspec.field(default_factory=dict)
    """By the ids of its jobs."""
    needs: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    made: dict[int, str] = msgspec.field(default_factory=dict)
    """The created job of each place."""


class RunJudge:
    """Observes the store, and reports facts about runs and their jobs."""

    def __init__(self, watcher: ClaimWatcher, state_of: Callable[[str], str]) -> None:
        self._watcher = watcher
        self._state_of = state_of
        """Returns the state of a job; empty if unknown."""
        self._runs: dict[str, JudgedRun] = {}
        self._pieces: dict[str, dict[int, PlanPiece]] = {}
        self._of: dict[int, str] = {}
        """The run of each submission."""
        self.cancels: set[str] = set()
        """Runs whose cancellation was requested."""
        self.with_lost_writes: set[str] = set()
        """Runs with data lost in a fail-over."""

    def acknowledged(self, number: int, run_id: str) -> None:
        """Check that a submission has one run."""
        before = self._of.setdefault(number, run_id)
        made = ClientRequest([one for one in (before, run_id) if one not in self.with_lost_writes])
        self._watcher.check(made, run_id, lambda: f"run {number} has become {before} and {run_id}")

    def unsettled(self) -> list[str]:
        """Return the runs that were not reported."""
        return [name for name, one in self._runs.items() if one.state not in RUN.terminal]

    def known(self) -> list[str]:
        """Return the existing runs."""
        return list(self._runs)

    def gone(self, run_id: str) -> None:
        """Handle a pruned run."""
        self._runs.pop(run_id, None)
        self._pieces.pop(run_id, None)

    # Writes

    def written(self, record: Record) -> None:
        """Handle a changed run or piece of a plan."""
        if record.kind == RUN.name:
            self._run_written(record)
        elif record.kind == PLAN.name:
            piece = msgspec.json.decode(record.body, type=PlanPiece)
            pieces = self._pieces.setdefault(record.parent or record.id.partition(".")[0], {})
            pieces[piece.first] = piece

    def _run_written(self, record: Record) -> None:
        now = JudgedRun(decode_run(record.body), RunState(record.state))
        before = self._runs.get(record.id)
        if before is not None:
            now.made = before.made
            self._step(record.id, before, now)
        else:
            self._watcher.saw("a run is submitted")
        self._runs[record.id] = now
        self._plan(record.id, now)
        self._watcher.check(RunWritten(record.id, now.state, now.body), record.id)

    def _plan(self, run_id: str, now: JudgedRun) -> None:
        """Read requirements and needs of each job from the stored plan."""
        pieces = self._pieces.get(run_id, {}).values()
        jobs = [planned for piece in pieces for planned in piece.jobs]
        names = [name for piece in pieces for name in piece.ids]
        ids = {planned.name: name for planned, name in zip(jobs, names, strict=True)}
        now.required = {ids[planned.name]: planned.required for planned in jobs}
        now.needs = {ids[planned.name]: tuple(ids[each] for each in planned.needs) for planned in jobs}

    def _step(self, run_id: str, before: JudgedRun, now: JudgedRun) -> None:
        self._watcher.check(RunTransition(run_id, before.state, before.body, now.state, now.body), run_id)
        if before.body.data.outcome is None and now.body.data.outcome is not None:
            self._plan(run_id, now)
            self._decided(run_id, now)

    def _decided(self, run_id: str, now: JudgedRun) -> None:
        self._watcher.saw(f"run {now.body.data.outcome}")
        required = {name: self._state_of(name) for name, required in now.required.items() if required}
        self._watcher.check(RunOutcome(run_id, now.body, required, run_id in self.cancels), run_id)

    # Jobs

    def made(self, job_id: str, part: RunPart, place: int) -> None:
        """Check the creation of a job of a run."""
        planned = self._runs.get(part.run_id)
        if planned is None:
            return
        first = planned.made.setdefault(place, job_id)
        if part.run_id in self.with_lost_writes:
            return
        pieces = self._pieces.get(part.run_id, {}).values()
        guarded = any(each.environment for piece in pieces for each in piece.jobs)
        approved = bool(planned.body.approvals)
        self._watcher.check(CreatedRunJob(job_id, part.run_id, place, first, guarded, approved), job_id)

    def begun(self, job_id: str, body: JobBody) -> None:
        """Check the first grant of a job of a run."""
        part = body.run
        assert part is not None
        planned = self._runs.get(part.run_id)
        if planned is None:
            return
        needs = {
            needed: (self._state_of(needed), planned.required[needed])
            for needed in planned.needs.get(job_id, ())
        }
        self._watcher.check(StartedRunJob(job_id, needs), job_id)

    def may_be_stopped(self, job_id: str, body: JobBody, reason: str | None) -> bool:
        """Return whether there is a reason to stop a job of a run."""
        part = body.run
        assert part is not None
        planned = self._runs.get(part.run_id)
        if planned is None or part.run_id in self.with_lost_writes:
            return True
        data = planned.body.data
        match reason:
            case "cancel" | "superseded":
                return data.cancel_requested
            case "fail_fast":
                return data.outcome is run.FAILED
            case "timeout":
                return data.outcome is run.TIMEOUT or body.job_timeout_s is not None
            case "upstream":
                return any(self._is_unwell(each) for each in planned.needs.get(job_id, ()))
            case _:
                return False

    def _is_unwell(self, job_id: str) -> bool:
        """Return whether a job has not completed."""
        return self._state_of(job_id) != job.COMPLETED

    # Faults

    def lost(self, kind: str, name: str, back_to: Record | None) -> None:
        """Handle a run or plan with writes lost in a fail-over."""
        if kind == RUN.name:
            self.with_lost_writes.add(name)
            before = self._runs.pop(name, None)
            if back_to is not None:
                self._runs[name] = JudgedRun(decode_run(back_to.body), RunState(back_to.state))
                self._runs[name].made = before.made if before is not None else {}
                self._plan(name, self._runs[name])
