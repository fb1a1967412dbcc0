"""What a workflow file has to keep beside its shape: that the names in it mean something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from yaml.nodes import Node

from interlock.systems.runs.planning.faults import Faults
from interlock.systems.runs.planning.kinds import Placed, inside
from interlock.systems.runs.planning.model import Job, Step, WorkflowFile


def check(workflow: WorkflowFile, faults: Faults) -> None:
    """Look at everything that refers to something else."""
    if not workflow.jobs:
        faults.add(workflow.place, "a workflow has at least one job")
    _check_inputs(workflow, faults)
    _check_names(tuple(_texts_of_workflow(workflow)), workflow, None, faults)
    for job in workflow.jobs.values():
        _check_kind(job, faults)
        for need in job.waits_for:
            if need.name not in workflow.jobs:
                faults.unknown(need.place, "job", need.name, tuple(workflow.jobs))
        _check_names(tuple(_texts_of_job(job)), workflow, job, faults)
    _check_cycles(workflow.jobs, faults)


def _check_inputs(workflow: WorkflowFile, faults: Faults) -> None:
    for name, declared in workflow.inputs.items():
        if declared.default and declared.options and declared.default not in declared.options:
            faults.add(declared.place, f"the default of {name} is none of its options")


def _check_kind(job: Job, faults: Faults) -> None:
    """Steps and a task each have keys that the other has no use for."""
    if not job.task:
        if job.input is not None:
            faults.add(job.place, "input is for a task; steps have env")
        return
    of_steps = {
        "env": job.env,
        "workdir": job.workdir,
        "checkout": job.checkout is not None,
        "checkout-secret": job.checkout_secret,
        "artifacts": job.artifacts,
        "cache": job.cache,
    }
    for name, value in of_steps.items():
        if value:
            faults.add(job.place, f"{name} is for steps; a task has input")


def _check_names(
    texts: tuple[tuple[str, Node, int], ...], workflow: WorkflowFile, job: Job | None, faults: Faults
) -> None:
    """Names of the matrix and of inputs have to be declared."""
    matrix = job.matrix.names if job is not None and job.matrix is not None else ()
    known = {"matrix": ("axis of the matrix", matrix), "inputs": ("input", tuple(workflow.inputs))}
    for name, node, offset in texts:
        family, dot, key = name.partition(".")
        if dot and key not in known[family][1]:
            noun, names = known[family]
            faults.unknown(inside(node, offset), noun, key, names)


def _texts_of_workflow(workflow: WorkflowFile) -> Iterator[tuple[str, Node, int]]:
    group = workflow.concurrency.group if workflow.concurrency is not None else None
    yield from _holes(group, *workflow.env.values())


def _texts_of_job(job: Job) -> Iterator[tuple[str, Node, int]]:
    if job.condition is not None:
        condition, node = job.condition
        yield from ((named.name, node, named.offset) for named in condition.names)
    yield from _holes(job.queue, job.workdir, *(job.runs_on or ()), *job.env.values())
    for step in job.steps:
        yield from _texts_of_step(step)
    for artifact in job.artifacts:
        yield from _holes(artifact.name, *artifact.path)
    for cache in job.cache:
        yield from _holes(cache.key, *cache.path, *cache.files, *cache.restore_keys)


def _texts_of_step(step: Step) -> Iterator[tuple[str, Node, int]]:
    yield from _holes(step.run, step.name, step.workdir, *step.env.values())


def _holes(*texts: Placed | None) -> Iterator[tuple[str, Node, int]]:
    for text in texts:
        if text is not None:
            yield from ((hole.name, text.node, hole.offset) for hole in text.template.holes)


def _check_cycles(jobs: Mapping[str, Job], faults: Faults) -> None:
    """Take away what needs nothing that is left, again and again; what cannot be taken is a circle."""
    left = {name: {need.name for need in job.waits_for if need.name in jobs} for name, job in jobs.items()}
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    if left:
        circle = _circle(left)
        last = next(need for need in jobs[circle[0]].waits_for if need.name == circle[1])
        faults.add(last.place, f"jobs wait for each other: {' → '.join(circle)}")


def _circle(left: Mapping[str, set[str]]) -> list[str]:
    """One circle, from a job back to itself."""
    path = [next(iter(left))]
    while True:
        following = min(left[path[-1]] & left.keys())
        if following in path:
            return [*path[path.index(following) :], following]
        path.append(following)
