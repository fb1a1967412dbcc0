"""`SimulationManager`: the operations on simulations.

Clients create, pause, resume, cancel and read; workers report under the lease of the job that executes it. A
simulation and its job are created in one commit, and so are a resume and its job.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from interlock.engine.loader import every_entry
from interlock.engine.unit_of_work import Decision, Engine
from interlock.errors import (
    AlreadyThere,
    SimulationExists,
    TransitionNotAllowed,
    VersionChanged,
)
from interlock.lifecycles import simulation
from interlock.lifecycles.simulation import SIMULATION
from interlock.machine import Event, Refused
from interlock.store.records import Count, Entry, Key, Pruned, Query, Record, Repeated
from interlock.systems.orchestrator.ids import JobIds
from interlock.systems.simulations.aggregate import SimulationAggregate
from interlock.systems.simulations.body import (
    BEATING,
    PULSE,
    FoundSimulations,
    decode_pulse,
    found,
    metrics_of,
    query_of,
)
from interlock.systems.simulations.reconciler import CancelJob, SimulationReconciler, Written
from interlock.systems.simulations.settings import DEFAULT_SETTINGS, SimulationSettings
from interlock.systems.simulations.state_files import ImportResult, import_directory
from interlock.systems.simulations.validation import check, job_change, unknown
from interlock.wire.filter_language import LOOKED_AT
from interlock.wire.simulations import SimulationFilter, SimulationMetrics, SimulationSpec, SimulationView

PAGE = 500
EVERYTHING = SimulationFilter()

ChangeOfSimulation = Callable[[SimulationAggregate, str], "tuple[Any, ...] | None"]
"""Changes a simulation, or raises; returns the additional changes to commit, None for no commit."""


class SimulationManager(SimulationReconciler):
    """The simulations in a store."""

    def __init__(
        self,
        engine: Engine,
        *,
        settings: SimulationSettings = DEFAULT_SETTINGS,
        cancel_job: CancelJob | None = None,
        below: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        super().__init__(engine, settings, cancel_job)
        self._ids = JobIds(below, prefix="s_")
        self._job_ids = JobIds(below)

    # Operations of clients

    async def create_run(
        self, spec: SimulationSpec, *, actor: str = "", request_id: str | None = None, queue: str = ""
    ) -> SimulationView:
        """Create a simulation, and the job that executes it if it has a task.

        `queue` is only for this execution: a resume uses that of the spec.
        """
        check(spec, self.settings)
        idempotency_key = self.engine.key_for(request_id, "create a simulation", spec)
        keys = [Key(SIMULATION.name, spec.run_id)] if spec.run_id else []

        def decide(present: Sequence[Record | None], now: datetime) -> Decision[str]:
            if any(present):
                raise SimulationExists(
                    f"There is a simulation {spec.run_id} already.",
                    todo="Choose another id, or leave it out.",
                    facts={"run_id": spec.run_id},
                )
            run_id = spec.run_id or self._ids.draw(now)
            draft, commit_id = (
                SimulationAggregate.new(run_id, spec, now, self.settings),
                self.engine.commit_id(),
            )
            more = self._executed(draft, commit_id, actor, queue) if spec.task else ()
            commit = draft.commit(commit_id=commit_id, actor=actor, reason="created", more=more)
            request = idempotency_key.answered(msgspec.json.encode(run_id)) if idempotency_key else None
            return Decision(run_id, msgspec.structs.replace(commit, request=request))

        async def do() -> SimulationView:
            applied = await self.engine.apply_once(idempotency_key, keys, decide)
            if isinstance(applied, Repeated):
                return await self.get(msgspec.json.decode(applied.recorded.answer.body, type=str))
            return await self.get(applied.answer)

        return await self.engine.answer_once(idempotency_key, SimulationView, do)

    async def pause(
        self, run_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> SimulationView:
        """Request a pause after the current step; its worker makes the transition."""

        def act(draft: SimulationAggregate, _: str) -> tuple[Any, ...] | None:
            if draft.body.data.pause_requested:
                return None
            draft.must(simulation.RequestPause(at=draft.now))
            return ()

        return await self._act("pause", run_id, act, reason, actor, request_id)

    async def resume(
        self,
        run_id: str,
        *,
        reason: str = "",
        actor: str = "",
        request_id: str | None = None,
        queue: str = "",
    ) -> SimulationView:
        """Resume it after the last saved step, in its queue or another one.

        Two resumes make one execution; a job that waits in another queue is moved.
        """
        left = ""

        def act(draft: SimulationAggregate, commit_id: str) -> tuple[Any, ...]:
            nonlocal left
            if queue:
                check(msgspec.structs.replace(draft.body.spec, queue=queue), self.settings)
            _check_resumable(draft, queue or draft.body.spec.queue)
            draft.body.data = msgspec.structs.replace(draft.body.data, cancel_requested=False)
            left = draft.body.execution.job_id
            return self._executed(draft, commit_id, actor, queue)

        verb = f"resume into {queue}" if queue else "resume"
        view = await self._act(verb, run_id, act, reason or "resume", actor, request_id)
        # Only if this call has decided: the answer to a repeat may be of an earlier execution.
        if left and view.job_id != left:
            await self._stop_job(left, f"the simulation {run_id} was resumed elsewhere")
        return view

    async def cancel(
        self, run_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> SimulationView:
        """Cancel a simulation permanently.

        It ends at once if it is not running, otherwise after the current step.
        """

        def act(draft: SimulationAggregate, _: str) -> tuple[Any, ...] | None:
            if draft.body.data.cancel_requested and draft.state is simulation.RUNNING:
                return None
            draft.must(simulation.Cancel(at=draft.now))
            return ()

        view = await self._act("cancel", run_id, act, reason, actor, request_id)
        if view.status == simulation.CANCELLED and view.job_id:
            await self._stop_job(view.job_id, f"the simulation {run_id} was cancelled")
        return view

    async def transition(
        self,
        run_id: str,
        new_status: str,
        *,
        expected_version: int | None = None,
        worker_id: str | None = None,
        step: int | None = None,
        error: str = "",
        actor: str = "",
        reason: str = "",
        request_id: str | None = None,
    ) -> SimulationView:
        """Apply a transition of the table.

        It is for programs that execute simulations without jobs.
        """
        target = SIMULATION.state(new_status)

        def act(draft: SimulationAggregate, _: str) -> tuple[Any, ...]:
            version = draft.record.version if draft.record else 0
            if expected_version is not None and version != expected_version:
                raise _version_changed(draft, expected_version, version)
            steps = SIMULATION.toward(draft.state, target)
            if isinstance(steps, Refused):
                raise steps.error()
            draft.must(_event_toward(draft, str(target), worker_id, step, error))
            if target is simulation.RUNNING:
                draft.execute("")  # a pending job for it is obsolete
                draft.begun(0)
            return ()

        content = (new_status, expected_version, worker_id, step, error, reason)
        return await self._act("transition", run_id, act, reason, actor, request_id, content)

    # Views

    async def get_state(self, run_id: str) -> SimulationView | None:
        """Return the simulation; None if there is none."""
        keys = [Key(SIMULATION.name, run_id), Key(PULSE.name, run_id)]
        record, beside = await self.engine.store.load(keys)
        return None if record is None else await self._view(record, beside)

    async def get(self, run_id: str) -> SimulationView:
        """Return the simulation; raise if there is none."""
        view = await self.get_state(run_id)
        if view is None:
            raise unknown(run_id)
        return view

    async def metrics(self, run_id: str) -> SimulationMetrics:
        """Return its metrics over the steps; their number is bounded."""
        keys = [Key(SIMULATION.name, run_id), Key(PULSE.name, run_id)]
        record, beside = await self.engine.store.load(keys)
        if record is None:
            raise unknown(run_id)
        return metrics_of(record, beside)

    async def list_runs(
        self, wanted: SimulationFilter = EVERYTHING, *, cursor: str = "", limit: int = 100
    ) -> tuple[list[SimulationView], str]:
        """Return a page of simulations, newest first, and the next cursor."""
        page: FoundSimulations = await found(self.engine.store, wanted, cursor=cursor, limit=limit)
        return [await self._view(*pair) for pair in page.pairs], page.cursor

    async def count(self, wanted: SimulationFilter = EVERYTHING, *, cap: int = 10_000) -> Count:
        """Return the number with a status and a priority, up to a cap."""
        return await self.engine.store.count(query_of(wanted, "", 1), cap=cap, within=LOOKED_AT)

    async def check_stale_runs(self, timeout_s: float | None = None) -> list[str]:
        """Return running simulations without a heartbeat for this long.

        The default is the time after which the sweep interrupts them.
        """
        allowed = timedelta(seconds=timeout_s or self.settings.simulation_silence_s)
        query, silent = Query(kind=PULSE.name, states=(BEATING,), limit=PAGE), list[str]()
        now = await self.engine.clock.now()
        while True:
            page = await self.engine.store.find(query)
            for record in page.records:
                last_beat = decode_pulse(record).at
                if last_beat is not None and now >= last_beat + allowed:
                    silent.append(record.id)
            if not page.cursor:
                return silent
            query = msgspec.structs.replace(query, cursor=page.cursor)

    async def history(self, run_id: str) -> list[Entry]:
        """Return its history, oldest first: transitions, requests and warnings."""
        await self.get(run_id)
        entries = [
            entry
            for kind in (SIMULATION.name, PULSE.name)
            async for entry in every_entry(self.engine.store, Key(kind, run_id))
        ]
        return sorted(entries, key=lambda entry: (entry.at, entry.kind != PULSE.name))

    async def prune(self, older_than: timedelta, *, limit: int = 1_000) -> Pruned:
        """Remove up to `limit` simulations that ended longer ago."""
        pruned = [
            await self.engine.store.prune(
                kind=machine.name, states=sorted(machine.terminal), older_than=older_than, limit=limit
            )
            for machine in (PULSE, SIMULATION)
        ]
        entries, requests = sum(each.entries for each in pruned), sum(each.requests for each in pruned)
        more = any(each.more for each in pruned)
        return Pruned(records=pruned[-1].records, entries=entries, requests=requests, more=more)

    async def import_directory(self, folder: Path, *, actor: str = "", task: str = "") -> ImportResult:
        """Import runs: every `state.json` below a folder. Idempotent."""
        return await import_directory(self.engine, self.settings, folder, actor=actor, task=task)

    # Implementation

    async def _act(
        self,
        verb: str,
        run_id: str,
        act: ChangeOfSimulation,
        reason: str,
        actor: str,
        request_id: str | None,
        content: object = None,
    ) -> SimulationView:
        idempotency_key = self.engine.key_for(
            request_id, f"{verb} {run_id}", reason if content is None else content
        )

        def decide(present: Sequence[Record | None], now: datetime) -> Decision[Written]:
            draft, commit_id = self._draft(run_id, present, now), self.engine.commit_id()
            more = act(draft, commit_id)
            if more is None:
                return Decision(Written(present))
            commit = draft.commit(commit_id=commit_id, actor=actor, reason=reason, more=more)
            request = idempotency_key.answered(b"null") if idempotency_key else None
            return Decision(Written(present, commit), msgspec.structs.replace(commit, request=request))

        async def do() -> SimulationView:
            applied = await self.engine.apply_once(idempotency_key, self._keys(run_id), decide)
            if isinstance(applied, Repeated):
                return await self.get(run_id)
            return await self._view(*applied.answer.records(applied.at))

        return await self.engine.answer_once(idempotency_key, SimulationView, do)

    def _executed(
        self, draft: SimulationAggregate, commit_id: str, actor: str, queue: str
    ) -> tuple[Any, ...]:
        job_id = self._job_ids.draw(draft.now)
        draft.execute(job_id, queue)
        number = draft.body.execution.number
        spec = msgspec.structs.replace(draft.body.spec, queue=queue or draft.body.spec.queue)
        made = job_change(
            spec, draft.id, number, job_id, draft.now, self.settings, commit_id=commit_id, actor=actor
        )
        return (made,)


def _check_resumable(draft: SimulationAggregate, queue: str) -> None:
    """Raise unless a worker of a queue may continue it.

    The table says from which states.
    """
    execution = draft.body.execution
    waits_in = execution.queue or draft.body.spec.queue
    facts: dict[str, object] = {"run_id": draft.id, "state": str(draft.state), "job_id": execution.job_id}
    if execution.awaited and draft.state in simulation.STANDING and waits_in == queue:
        raise AlreadyThere(
            f"The simulation {draft.id} is {draft.state} and already waits for a worker, in the queue "
            f"{queue}, for the job {execution.job_id}.",
            todo=f"See why it waits with `interlock job explain {execution.job_id}`, or resume it in "
            "another queue with --queue.",
            facts=facts,
        )
    if not draft.body.spec.task:
        raise TransitionNotAllowed(
            f"The simulation {draft.id} is {draft.state} and has no task, so no worker can execute it.",
            todo="Move it to running by hand.",
            facts=facts,
        )
    if draft.state is not simulation.PENDING:  # there its job has ended before it began
        asks = simulation.Resume(at=draft.now, worker_id="")
        decided = SIMULATION.decide(draft.state, draft.body.data, asks)
        if isinstance(decided, Refused):
            raise decided.error()


def _event_toward(
    draft: SimulationAggregate, target: str, worker_id: str | None, step: int | None, error: str
) -> Event:
    """Return the event that leads to a named state."""
    data, at = draft.body.data, draft.now
    who = worker_id if worker_id is not None else data.worker_id or "by hand"
    reached = step if step is not None else data.current_step
    begins = simulation.Start if draft.state is simulation.PENDING else simulation.Resume
    events: dict[str, Event] = {
        simulation.RUNNING: begins(at=at, worker_id=who),
        simulation.PAUSED: simulation.Pause(at=at, worker_id=who, step=reached),
        simulation.COMPLETED: simulation.Complete(at=at, worker_id=who, step=reached),
        simulation.FAILED: simulation.Fail(at=at, worker_id=who, error=error or "no reason was given"),
        simulation.INTERRUPTED: simulation.Interrupt(at=at, reason=error),
        simulation.CANCELLED: simulation.Cancel(at=at),
    }
    return events[target]


def _version_changed(draft: SimulationAggregate, expected: int, version: int) -> VersionChanged:
    return VersionChanged(
        f"The simulation {draft.id} is {draft.state} in version {version}, not in version {expected}.",
        todo="Read it again, and decide anew.",
        facts={"run_id": draft.id, "state": str(draft.state), "version": version, "expected": expected},
    )
