"""Two versions of one program: each has a task that the other does not have, and both have one."""

from __future__ import annotations

import msgspec
from tests.journeys.crew import Crew
from tests.journeys.errands import note

from interlock.client import Interlock
from interlock.wire.jobs import JobSpec, JobView
from interlock.worker.tasks import Registry

OLD, NEW = f"{__name__}:old", f"{__name__}:new"
EACH = 6

old, new = Registry(), Registry()


async def remove(number: int) -> None:
    """Do what the new version does not do any more."""
    note(f"remove {number}")


async def add(number: int) -> None:
    """Do what the old version does not do yet."""
    note(f"add {number}")


async def keep(number: int) -> None:
    """Do what both versions do."""
    note(f"keep {number}")


for registry, functions in ((old, (remove, keep)), (new, (add, keep))):
    for function in functions:
        registry.task(name=f"app.{function.__name__}")(function)


def spec(task: str, number: int) -> JobSpec:
    """Return a job of one of the versions, as a program submits it that has neither."""
    return JobSpec(task=task, input=msgspec.Raw(b'{"number":%d}' % number))


async def each_does_its_own(crew: Crew, client: Interlock, starts: str) -> None:
    """Let one worker of each version take jobs of all three tasks; all are done at the first attempt."""
    names = ("app.remove", "app.add", "app.keep")
    specs = [spec(name, number) for number in range(EACH) for name in names]
    made = [await client.submit_many(specs)]
    await crew.start("old", module=OLD)
    await crew.start("new", module=NEW)
    made.append(await client.submit_many(specs))

    await crew.all_completed(2 * len(specs))

    views = [await client.job(job.id) for jobs in made for job in jobs]
    assert {len(view.attempts) for view in views} == {1}
    assert {view.task: _workers(views, view.task, starts) for view in views} | {"app.keep": set()} == {
        "app.remove": {"old"},
        "app.add": {"new"},
        "app.keep": set(),
    }
    assert await crew.faults() == []


def _workers(views: list[JobView], task: str, starts: str) -> set[str]:
    """Return which workers have executed the jobs of a task."""
    runners = [
        view.attempts[0].lease.runner_id for view in views if view.task == task and view.attempts[0].lease
    ]
    return {runner.removeprefix(starts).partition("#")[0] for runner in runners}
