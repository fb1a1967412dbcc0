"""Interlock: a work orchestrator in which every lifecycle is a declared state machine.

    from interlock import Interlock, task

    @task
    async def double(x: int) -> int:
        return 2 * x

    async with Interlock("sqlite:///interlock.db") as il:
        job = await il.submit(double, 21)
        print(await job.result(timeout_s=60))       # with `interlock worker start THIS_MODULE` beside it

The path of one job from submit to done, in the order in which to read the code:

    worker/tasks.py                          a function becomes a task; its arguments become JSON
    systems/orchestrator/submission.py       a spec becomes a pending job, with one attempt per shard
    systems/orchestrator/grants.py           a worker claims work; an attempt is granted under a lease
    worker/process.py, running_task.py       the worker executes it and keeps the lease alive
    systems/orchestrator/runner_messages.py  messages of the worker are accepted, under the live lease only
    systems/orchestrator/aggregate.py        a job, its attempts and leases as one record
    engine/aggregate.py, machine/cascade.py  one machine moves, the couplings follow, the record changes
    lifecycles/                              the transition tables, which alone decide
    engine/, store/                          decisions are committed: all of it, or nothing

`ARCHITECTURE.md` has the same with a diagram.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing it from typing would take as long as printing a help text
if TYPE_CHECKING:
    from interlock.client import Interlock, JobHandle
    from interlock.errors import FlakyError, InterlockError
    from interlock.systems.kinds import kind
    from interlock.systems.runs.workflows.flow import Flow, flow
    from interlock.wire.access import Role
    from interlock.wire.jobs import After, DeadLetter, JobSpec, JobView, RetryRule, Unique
    from interlock.wire.runs import Plan, PlannedApproval, PlannedJob, RunSpec, Source
    from interlock.wire.schedules import ScheduleSpec, ScheduleView
    from interlock.wire.simulations import SimulationSpec
    from interlock.worker.composition import all_of, any_of, chain, chord, group
    from interlock.worker.context import Context, TaskCancelled
    from interlock.worker.postponement import RetryAfter, RetryAt, Snooze
    from interlock.worker.simulations import Simulation, SimulationContext, simulation
    from interlock.worker.tasks import Registry, Task, middleware, schedule, task

_HOMES = {
    "After": "interlock.wire.jobs",
    "Context": "interlock.worker.context",
    "DeadLetter": "interlock.wire.jobs",
    "FlakyError": "interlock.errors",
    "Flow": "interlock.systems.runs.workflows.flow",
    "Interlock": "interlock.client",
    "InterlockError": "interlock.errors",
    "JobHandle": "interlock.client",
    "JobSpec": "interlock.wire.jobs",
    "JobView": "interlock.wire.jobs",
    "Plan": "interlock.wire.runs",
    "PlannedApproval": "interlock.wire.runs",
    "PlannedJob": "interlock.wire.runs",
    "Registry": "interlock.worker.tasks",
    "RetryAfter": "interlock.worker.postponement",
    "RetryAt": "interlock.worker.postponement",
    "RetryRule": "interlock.wire.jobs",
    "RunSpec": "interlock.wire.runs",
    "ScheduleSpec": "interlock.wire.schedules",
    "ScheduleView": "interlock.wire.schedules",
    "Simulation": "interlock.worker.simulations",
    "SimulationContext": "interlock.worker.simulations",
    "SimulationSpec": "interlock.wire.simulations",
    "Snooze": "interlock.worker.postponement",
    "Source": "interlock.wire.runs",
    "Task": "interlock.worker.tasks",
    "TaskCancelled": "interlock.worker.context",
    "Role": "interlock.systems.access.principals",
    "Unique": "interlock.wire.jobs",
    "all_of": "interlock.worker.composition",
    "any_of": "interlock.worker.composition",
    "chain": "interlock.worker.composition",
    "chord": "interlock.worker.composition",
    "flow": "interlock.systems.runs.workflows.flow",
    "group": "interlock.worker.composition",
    "kind": "interlock.systems.kinds",
    "middleware": "interlock.worker.tasks",
    "schedule": "interlock.worker.tasks",
    "simulation": "interlock.worker.simulations",
    "task": "interlock.worker.tasks",
}

__all__ = [
    "After",
    "Context",
    "DeadLetter",
    "FlakyError",
    "Flow",
    "Interlock",
    "InterlockError",
    "JobHandle",
    "JobSpec",
    "JobView",
    "Plan",
    "PlannedApproval",
    "PlannedJob",
    "Registry",
    "RetryAfter",
    "RetryAt",
    "RetryRule",
    "Role",
    "RunSpec",
    "ScheduleSpec",
    "ScheduleView",
    "Simulation",
    "SimulationContext",
    "SimulationSpec",
    "Snooze",
    "Source",
    "Task",
    "TaskCancelled",
    "Unique",
    "all_of",
    "any_of",
    "chain",
    "chord",
    "flow",
    "group",
    "kind",
    "middleware",
    "schedule",
    "simulation",
    "task",
]


def __getattr__(name: str) -> object:
    """Import a public name on first use.

    So `interlock --help` starts quickly.
    """
    if name not in _HOMES:
        raise AttributeError(f"module 'interlock' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - as above

    return getattr(import_module(_HOMES[name]), name)
