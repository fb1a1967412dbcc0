"""Workflow files: read, validated, and planned, from a text or from the files of a commit.

    name: ci
    on: [push, pull_request]
    jobs:
      lint:
        steps:
          - run: make lint
      test:
        needs: lint
        matrix: {python: ["3.11", "3.12"]}
        if: changed('src/**', 'tests/**')
        steps:
          - run: make test PYTHON=${{ matrix.python }}

Every fault is reported with line and column, all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

import msgspec
from yaml.nodes import Node

from interlock.errors import PlanRefused
from interlock.systems.runs.plan_validation import cycle_in
from interlock.systems.runs.workflows import Clone, WorkflowText
from interlock.systems.runs.workflows.field_types import PlacedTemplate, inside
from interlock.systems.runs.workflows.model import WorkflowFile, WorkflowJob, WorkflowStep
from interlock.systems.runs.workflows.planner import group_of, plan_of
from interlock.systems.runs.workflows.schema import WORKFLOW
from interlock.systems.runs.workflows.yaml_nodes import FileFaults, FilePosition, compose
from interlock.wire.runs import Plan, PlannedJob, RunSpec, SkippedJob, Source


def check(workflow: WorkflowFile, faults: FileFaults) -> None:
    """Check all references between parts of the file."""
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


def _check_inputs(workflow: WorkflowFile, faults: FileFaults) -> None:
    for name, declared in workflow.inputs.items():
        if declared.default and declared.options and declared.default not in declared.options:
            faults.add(declared.place, f"the default of {name} is none of its options")


def _check_kind(job: WorkflowJob, faults: FileFaults) -> None:
    """Check that a job has no keys of the other kind: steps or a task."""
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
    texts: tuple[tuple[str, Node, int], ...],
    workflow: WorkflowFile,
    job: WorkflowJob | None,
    faults: FileFaults,
) -> None:
    """Check that names of the matrix and of inputs are declared."""
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


def _texts_of_job(job: WorkflowJob) -> Iterator[tuple[str, Node, int]]:
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


def _texts_of_step(step: WorkflowStep) -> Iterator[tuple[str, Node, int]]:
    yield from _holes(step.run, step.name, step.workdir, *step.env.values())


def _holes(*texts: PlacedTemplate | None) -> Iterator[tuple[str, Node, int]]:
    for text in texts:
        if text is not None:
            yield from ((hole.name, text.node, hole.offset) for hole in text.template.holes)


def _check_cycles(jobs: Mapping[str, WorkflowJob], faults: FileFaults) -> None:
    """Report jobs that wait for each other."""
    if cycle := cycle_in({name: [need.name for need in job.waits_for] for name, job in jobs.items()}):
        last = next(need for need in jobs[cycle[0]].waits_for if need.name == cycle[1])
        faults.add(last.place, f"jobs wait for each other: {' → '.join(cycle)}")


def read_workflow(text: str, file: str = "workflow.yml") -> WorkflowFile:
    """Parse a workflow file; raise `PlanRefused` with all faults."""
    faults = FileFaults(file)
    node = compose(text, faults)
    if node is None:
        if not faults.found:
            faults.add(FilePosition(1, 1), "the file is empty")
        raise faults.refusal()
    found: WorkflowFile = WORKFLOW.read(node, faults)
    check(found, faults)
    faults.refuse_if_any()
    return found


def name_of(workflow: WorkflowFile, file: str) -> str:
    """Return the workflow name of its runs: its name, or that of the file."""
    return workflow.name or PurePosixPath(file).stem


def spec_of_file(text: str, file: str, source: Source, inputs: Mapping[str, str]) -> RunSpec:
    """Return the run spec of a workflow file.

    Raise its faults now, before the run exists.
    """
    workflow = read_workflow(text, file)
    plan_of(workflow, source, inputs)
    return RunSpec(
        workflow=name_of(workflow, file),
        planner="workflow",
        definition=text,
        inputs=dict(inputs),
        source=source,
        concurrency_group=group_of(workflow, source, inputs),
    )


def plan_of_text(spec: RunSpec) -> Plan:
    """Return the plan of the workflow file in the request."""
    file = f"{spec.workflow or 'workflow'}.yml"
    return plan_of(read_workflow(spec.definition, file), spec.source, spec.inputs)


def plan_of_files(texts: list[WorkflowText], source: Source, inputs: Mapping[str, str], clone: Clone) -> Plan:
    """Return one plan of all files.

    With several files, their names prefix those of their jobs.
    """
    plans: dict[str, Plan] = {}
    for file in texts:
        workflow = read_workflow(_decoded(file), file.path)
        # An input belongs to the files that declare it.
        own = {name: value for name, value in inputs.items() if len(texts) == 1 or name in workflow.inputs}
        name = name_of(workflow, file.path)
        if name in plans:
            raise PlanRefused(
                f"Two workflow files are called {name}.",
                todo="Give one of them another name.",
                facts={"name": name, "file": file.path},
            )
        plans[name] = plan_of(workflow, source, own, clone=clone)
    if len(plans) == 1:
        return next(iter(plans.values()))
    limits = [plan.timeout_s for plan in plans.values()]
    return Plan(
        jobs=tuple(_named(name, job) for name, plan in plans.items() for job in plan.jobs),
        skipped=tuple(
            SkippedJob(name=f"{name} / {job.name}", why=job.why, workflow=name)
            for name, plan in plans.items()
            for job in plan.skipped
        ),
        fail_fast=all(plan.fail_fast for plan in plans.values()),
        timeout_s=None if None in limits else max(limit for limit in limits if limit is not None),
        concurrency_group=_group([plan.concurrency_group for plan in plans.values()]),
    )


def _group(groups: list[str | None]) -> str | None:
    """Return the group of several files: the first named one.

    None as soon as one has none.
    """
    return "" if "" in groups else next((group for group in groups if group is not None), None)


def _named(workflow: str, job: PlannedJob) -> PlannedJob:
    needs = tuple(f"{workflow} / {need}" for need in job.needs)
    return msgspec.structs.replace(job, name=f"{workflow} / {job.name}", needs=needs, workflow=workflow)


def _decoded(file: WorkflowText) -> str:
    try:
        return file.text.decode()
    except UnicodeDecodeError as error:
        before = file.text[: error.start]
        faults = FileFaults(file.path)
        place = FilePosition(before.count(b"\n") + 1, error.start - before.rfind(b"\n"))
        faults.add(place, "there is a byte that is no UTF-8")
        raise faults.refusal() from error
