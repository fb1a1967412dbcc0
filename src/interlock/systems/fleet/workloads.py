"""The workloads of fleets in a store: each agent's share is a record that mirrors what was heard of it.

Authority is with the agents: a record says what a controller has heard. A controller tells facts about
the workloads of its own attempt, whose ids carry the attempt's fence, so that one which was given up
cannot write over what its successor says. While it lives it says so every few seconds; when it does not,
its workloads are written off as the agents themselves do it: by the disconnect, and 15 s to stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from interlock.engine.pages import every_entry
from interlock.engine.unit_of_work import Decision, Engine
from interlock.errors import InvalidWorkload
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB
from interlock.lifecycles.workload import WORKLOAD
from interlock.store.records import Commit, Committed, Entry, Key, Query, Record
from interlock.systems.fleet.aggregate import WorkloadAggregate, heard, silent, view_of
from interlock.systems.fleet.spec import TASK
from interlock.systems.orchestrator.answers import raise_for_answer
from interlock.systems.orchestrator.artifacts import Hear
from interlock.systems.orchestrator.body import decode_body as decode_job
from interlock.systems.orchestrator.settings import DEFAULT_SETTINGS, OrchestratorSettings
from interlock.systems.orchestrator.tokens import read_token
from interlock.wire.fleet.errors import UnknownWorkload
from interlock.wire.runner import Heartbeat
from interlock.wire.workloads import WorkloadFact, WorkloadView

MOST_FACTS = 200
"""So many at most become true together."""


def workload_id_of(job_id: str, fence: int, number: int) -> str:
    """What the workload of one agent is called; another attempt's is called otherwise."""
    return f"{job_id}_{fence}_{number}"


class Workloads:
    """The workloads in a store."""

    def __init__(
        self, engine: Engine, hear: Hear, *, settings: OrchestratorSettings = DEFAULT_SETTINGS
    ) -> None:
        self.engine = engine
        self._hear = hear
        self.settings = settings

    async def tell(self, facts: Sequence[WorkloadFact], *, actor: str = "") -> None:
        """Make what a controller has heard true; what was told before changes nothing."""
        for first in range(0, len(facts), MOST_FACTS):
            await self._tell(facts[first : first + MOST_FACTS], actor)

    async def tell_under(self, token: str, runner_id: str, facts: Sequence[WorkloadFact]) -> None:
        """The same for whoever holds the live lease of the job that drives them, and for nobody else."""
        (answer,) = await self._hear([Heartbeat(token=token, runner_id=runner_id)])
        raise_for_answer(answer)
        about = read_token(token)
        assert about is not None  # it was heard
        strange = [fact.workload_id for fact in facts if fact.job_id != about.job_id]
        if strange:
            raise unknown_workload(strange[0])
        await self.tell(facts, actor=runner_id)

    async def get(self, workload_id: str) -> WorkloadView:
        """The workload as it stands."""
        return view_of(await self._load(workload_id))

    async def find(self, query: Query) -> tuple[list[WorkloadView], str]:
        """A page of workloads, and the cursor of the next one."""
        page = await self.engine.store.find(query)
        return [view_of(record) for record in page.records], page.cursor

    async def history(self, workload_id: str) -> list[Entry]:
        """Everything that has happened to it, oldest first."""
        record = await self._load(workload_id)
        return [entry async for entry in every_entry(self.engine.store, record.key)]

    async def sweep(self, *, limit: int = 500) -> int:
        """Deal with workloads whose controller was not heard of for too long; answers how many."""

        def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
            mark = self.engine.mark()
            return [self._written_off(record, now, mark) for record in records]

        outcomes = await self.engine.due([WORKLOAD.name], limit, decide)
        return sum(isinstance(outcome, Committed) for outcome in outcomes)

    async def _tell(self, facts: Sequence[WorkloadFact], actor: str) -> None:
        by_id = {fact.workload_id: fact for fact in facts}
        if len(by_id) < len(facts):
            raise InvalidWorkload(
                "A workload is there twice.",
                todo="Say one thing about each workload at a time; the latest is enough.",
                facts={"workloads": len(facts)},
            )
        jobs = sorted({fact.job_id for fact in facts})
        keys = [Key(JOB.name, each) for each in jobs] + [Key(WORKLOAD.name, each) for each in by_id]

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[None]:
            mark = self.engine.mark()
            known = dict(zip(jobs, found, strict=False))
            changes = []
            for fact, record in zip(facts, found[len(jobs) :], strict=True):
                _check(fact, known[fact.job_id], record)
                draft = WorkloadAggregate(fact.workload_id, fact.job_id, now, self.settings.durations, record)
                if draft.over:
                    continue
                heard(draft, fact)
                changes.append(draft.change(mark=mark, actor=actor, reason=fact.error))
            return Decision(None, Commit(changes=tuple(changes)) if changes else None)

        await self.engine.apply(keys, decide)

    def _written_off(self, record: Record, now: datetime, mark: str) -> Commit:
        draft = WorkloadAggregate(record.id, record.parent or "", now, self.settings.durations, record)
        silent(draft)
        why = draft.body.why_lost
        return Commit(changes=(draft.change(mark=mark, actor="clock", reason=why),))

    async def _load(self, workload_id: str) -> Record:
        (record,) = await self.engine.store.load([Key(WORKLOAD.name, workload_id)])
        if record is None:
            raise unknown_workload(workload_id)
        return record


def unknown_workload(workload_id: str) -> UnknownWorkload:
    """No workload has that id."""
    return UnknownWorkload(
        f"There is no workload {workload_id}.",
        todo="Look for it with `interlock workload list`.",
        facts={"workload_id": workload_id},
    )


def _check(fact: WorkloadFact, driver: Record | None, record: Record | None) -> None:
    """Only a job that drives a fleet, and has not ended, makes workloads; and they stay its own."""
    if record is not None:
        if record.parent == fact.job_id:
            return
        raise unknown_workload(fact.workload_id)
    drives = driver is not None and decode_job(driver.body).task == TASK
    if driver is None or not drives or driver.state in job.ENDED:
        raise InvalidWorkload(
            f"The job {fact.job_id} does not drive a fleet now, so it has no workload {fact.workload_id}.",
            todo=f"Workloads are made by jobs of the task {TASK} while they run.",
            facts={"job_id": fact.job_id, "workload_id": fact.workload_id},
        )
