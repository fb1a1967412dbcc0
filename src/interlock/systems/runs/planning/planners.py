"""The planner of workflow files: of one that is given, or of those of a commit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from interlock.errors import PlanRefused
from interlock.systems.runs.planning.faults import Faults, Place
from interlock.systems.runs.planning.git import FOLDER, Mirror, Repositories, WorkflowText
from interlock.systems.runs.planning.jobs import Clone
from interlock.systems.runs.planning.planner import group_of, plan_of
from interlock.systems.runs.planning.port import PlanRequest
from interlock.systems.runs.planning.workflow import name_of, read_workflow
from interlock.wire.runs import Plan, PlannedJob, RunSpec, SkippedJob, Source


class WorkflowPlanner:
    """Makes plans of workflow files. Reading takes a while, so it is done beside the loop."""

    def __init__(self, repositories: Repositories | None = None) -> None:
        self._repositories = repositories

    async def plan(self, request: PlanRequest) -> Plan:
        """The plan of the file in the request, or of all files of the commit that it names."""
        spec = request.spec
        if spec.definition.strip():
            return await asyncio.to_thread(plan_of_text, spec)
        if self._repositories is None or not spec.source.repository:
            raise PlanRefused(
                "There is no workflow file in the request, and no repository to look for one.",
                todo="Give its text as `definition`, or name the repository and the commit.",
                facts={"run_id": request.run_id},
            )
        return await self._plan_of_commit(spec, self._repositories.mirror(spec.source.repository))

    async def descends(self, repository: str, sha: str, older: str) -> bool | None:
        """Whether a commit has another one in its history; None where that is not known here."""
        try:
            known = None if self._repositories is None else self._repositories.mirror(repository)
            return None if known is None else await known.descends(sha, older)
        except PlanRefused:
            return None

    async def _plan_of_commit(self, spec: RunSpec, mirror: Mirror) -> Plan:
        source = spec.source
        commit = await mirror.fetch(source.sha, source.ref, source.base_sha)
        texts = await mirror.workflows(commit)
        if not texts:
            raise PlanRefused(
                f"The commit {commit[:12]} of {source.repository} has no workflow file.",
                todo=f"Add one: {FOLDER}/ci.yml.",
                facts={"repository": source.repository, "sha": commit},
            )
        changed = source.changed_paths
        if changed is None:
            changed = await mirror.changed_paths(commit, source.base_sha)
        known = msgspec.structs.replace(source, sha=commit, changed_paths=changed)
        return await asyncio.to_thread(_plan_of_files, texts, known, spec.inputs, mirror.clone)


def spec_of_file(text: str, file: str, source: Source, inputs: Mapping[str, str]) -> RunSpec:
    """A run of a workflow file. Whatever is wrong with the file is told now, not by the run."""
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
    """The plan of the workflow file that a request has with it."""
    file = f"{spec.workflow or 'workflow'}.yml"
    return plan_of(read_workflow(spec.definition, file), spec.source, spec.inputs)


def _plan_of_files(
    texts: list[WorkflowText], source: Source, inputs: Mapping[str, str], clone: Clone
) -> Plan:
    """One plan of all files; where there are several, their names go before those of their jobs."""
    plans: dict[str, Plan] = {}
    for file in texts:
        workflow = read_workflow(_decoded(file), file.path)
        # Inputs are meant for the files that have them.
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


def _group(said: list[str | None]) -> str | None:
    """Of several files: what one of them names; none, as soon as one wants to go on beside others."""
    return "" if "" in said else next((group for group in said if group is not None), None)


def _named(workflow: str, job: PlannedJob) -> PlannedJob:
    needs = tuple(f"{workflow} / {need}" for need in job.needs)
    return msgspec.structs.replace(job, name=f"{workflow} / {job.name}", needs=needs, workflow=workflow)


def _decoded(file: WorkflowText) -> str:
    try:
        return file.text.decode()
    except UnicodeDecodeError as error:
        before = file.text[: error.start]
        faults = Faults(file.path)
        place = Place(before.count(b"\n") + 1, error.start - before.rfind(b"\n"))
        faults.add(place, "there is a byte that is no UTF-8")
        raise faults.refusal() from error
