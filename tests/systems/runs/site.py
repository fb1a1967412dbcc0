"""A house with runs in it, and short words for what is done with them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tests.systems.orchestrator.house import House, done, failed

from interlock.engine.audit import audit
from interlock.engine.outbox import take_all
from interlock.store.records import Change, Commit, Committed, Entry, Note, Record, StepLine
from interlock.systems.catalogue import CATALOGUE, JOURNALLED
from interlock.systems.orchestrator.submission import new_job
from interlock.systems.runs.runs import RunService
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import Grant
from interlock.wire.runs import Plan, PlannedJob, RunSpec, RunView


def planned(name: str, *needs: str, **more: Any) -> PlannedJob:
    """One job of a plan."""
    return PlannedJob(name=name, task=more.pop("task", "build"), needs=needs, **more)


def plan(*jobs: PlannedJob, **more: Any) -> Plan:
    """A plan of these jobs."""
    return Plan(jobs=jobs, **more)


class Site(House):
    """A house in which whoever sweeps looks after runs."""

    async def open(self, *, asking: bool = True) -> Site:
        """Connect; news is dealt with by `recover` only."""
        await super().open(asking=asking)
        self.runs.prompt = False
        return self

    @property
    def runs(self) -> RunService:
        """What people do with runs."""
        return self.port.services.runs

    def by_messages(self) -> None:
        """Let jobs notify their runs by messages only."""
        self.port.services.orchestrator.joint_reports.progress = None

    async def begin(
        self, *jobs: PlannedJob, fail_fast: bool = True, timeout_s: float | None = None, **spec: Any
    ) -> str:
        """A run of these jobs, planned."""
        made = Plan(jobs=jobs, fail_fast=fail_fast, timeout_s=timeout_s)
        view = await self.runs.submit(RunSpec(plan=made, **spec))
        await self.recover()
        return view.id

    async def look(self, run_id: str) -> RunView:
        """The run as everybody sees it."""
        return await self.runs.view(run_id)

    async def standing(self, run_id: str) -> dict[str, str]:
        """The states of its jobs, by their names."""
        return {job.name: job.state for job in (await self.look(run_id)).jobs}

    async def names(self, run_id: str) -> Mapping[str, str]:
        """The names of its jobs, by their ids."""
        return {job.job_id: job.name for job in (await self.look(run_id)).jobs}

    async def offered(self, run_id: str) -> dict[str, Grant]:
        """What runners are given now, by the names of the jobs."""
        names = await self.names(run_id)
        return {names[grant.job_id]: grant for grant in await self.claim(limit=1_000)}

    async def finish(self, run_id: str, *failing: str, sweep: bool = True) -> list[str]:
        """Runners do whatever there is, these fail; answers which jobs that were."""
        given = await self.offered(run_id)
        for name, grant in given.items():
            await self.heard(failed(grant, "compile") if name in failing else done(grant))
        if sweep:
            await self.recover()
        return sorted(given)

    async def claim_messages(self, topic: str) -> list[Record]:
        """Messages of a topic, taken by somebody who then is not heard of again."""
        return await take_all(self.store, (topic,), timedelta(seconds=30), limit=100)

    async def drop(self, message: Record) -> None:
        """An operator says that nobody wants it any more."""
        change = Change(
            kind=message.kind,
            id=message.id,
            expected=message.version,
            state="dropped",
            body=message.body,
            queue=message.queue,
            note=Note(steps=(StepLine("message", "", "drop", message.state, "dropped", "operator"),)),
        )
        assert isinstance((await self.store.commit([Commit(changes=(change,))]))[0], Committed)

    async def squat(self, job_id: str) -> None:
        """Somebody else makes a job of this name."""
        draft = new_job(JobSpec(task="other", queue="elsewhere"), job_id, self.clock(), self.settings)
        commit = Commit(changes=(draft.change(commit_id=job_id, actor="somebody"),))
        assert isinstance((await self.store.commit([commit]))[0], Committed)

    async def run_history(self, run_id: str) -> list[Entry]:
        """All that was journalled of a run."""
        return await self.runs.history(run_id)

    async def path(self, run_id: str) -> list[str]:
        """The states that it went through."""
        steps = [step for entry in await self.run_history(run_id) for step in entry.note.steps if step.moves]
        return [steps[0].source, *(step.target for step in steps)] if steps else []

    async def all_faults(self) -> list[object]:
        """Where journals and records disagree, of whatever kind."""
        return list((await audit(self.store, JOURNALLED, tuple(CATALOGUE))).faults)


async def granted(site: Site) -> Grant:
    """The next attempt, as soon as there is one; whoever looks after runs is at work beside us."""
    async with asyncio.timeout(60):
        while not (given := await site.claim(limit=1)):
            await asyncio.sleep(0)
    return given[0]


async def until(site: Site, run_id: str, state: str) -> RunView:
    """The run, once it is in that state."""
    async with asyncio.timeout(60):
        while (view := await site.look(run_id)).state != state:
            await asyncio.sleep(0)
    return view
