"""From a workflow and a change to a plan: which jobs there are, why, and why the others are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from interlock.errors import PlanRefused
from interlock.suggestions import nearest
from interlock.systems.runs.planning.conditions import changed_sentence
from interlock.systems.runs.planning.jobs import Clone, planned_job
from interlock.systems.runs.planning.matrix import Combination, combinations, leg_name
from interlock.systems.runs.planning.model import Job, Trigger, WorkflowFile
from interlock.systems.runs.planning.patterns import matching
from interlock.systems.runs.planning.table import EVENTS
from interlock.systems.runs.planning.variables import Known, branch_of, tag_of
from interlock.wire.runs import Plan, PlannedJob, SkippedJob, Source

MOST_JOBS = 10_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether something is in the plan, and why."""

    yes: bool
    why: str


AS_SAID = Clone()
"""The repository is where the source says."""


def plan_of(
    workflow: WorkflowFile, source: Source, inputs: Mapping[str, str] = {}, *, clone: Clone = AS_SAID
) -> Plan:
    """The plan."""
    known = Known(source, _inputs(workflow, inputs))
    started = _started(workflow, known)
    planned: dict[str, list[PlannedJob]] = {}
    skipped: list[SkippedJob] = []
    for name in _in_order(workflow.jobs):
        job = workflow.jobs[name]
        for leg, leg_known in _legs(name, job, known):
            verdict = _verdict(job, leg_known, started, planned)
            if verdict.yes:
                needs = tuple(made.name for need in job.waits_for for made in planned.get(need.name, ()))
                made = planned_job(workflow, job, leg, leg_known, clone)
                why = verdict.why if not (source.from_fork and job.secrets) else _without_secrets(verdict.why)
                planned.setdefault(name, []).append(msgspec.structs.replace(made, needs=needs, why=why))
            else:
                skipped.append(SkippedJob(name=leg, why=verdict.why))
    jobs = tuple(job for name in workflow.jobs for job in planned.get(name, ()))
    _refuse_too_many(jobs)
    return Plan(
        jobs=jobs,
        skipped=tuple(skipped),
        fail_fast=workflow.fail_fast,
        timeout_s=workflow.timeout,
        concurrency_group=group_of(workflow, source, inputs),
    )


def group_of(workflow: WorkflowFile, source: Source, inputs: Mapping[str, str] = {}) -> str | None:
    """The concurrency group that a workflow asks for; None for the default, empty for none."""
    concurrency = workflow.concurrency
    if concurrency is None:
        return None
    if not concurrency.cancel:
        return ""
    if concurrency.group is None:
        return None
    return concurrency.group.template.filled(Known(source, _inputs(workflow, inputs)))


def _inputs(workflow: WorkflowFile, given: Mapping[str, str]) -> dict[str, str]:
    """What was given, with the defaults; whatever does not fit is told together."""
    wrong = []
    for name, value in given.items():
        declared = workflow.inputs.get(name)
        if declared is None:
            guess = nearest(name, tuple(workflow.inputs))
            wrong.append(f"there is no input {name!r}" + (f"; did you mean {guess}?" if guess else ""))
        elif declared.options and value not in declared.options:
            wrong.append(f"{name} cannot be {value!r}, only {' or '.join(declared.options)}")
    missing = [name for name, one in workflow.inputs.items() if one.required and not given.get(name)]
    wrong += [f"the input {name} is missing" for name in missing]
    if wrong:
        raise PlanRefused(
            f"The inputs do not fit the workflow: {'; '.join(wrong)}.",
            allowed=tuple(workflow.inputs),
            todo="Give them as --input NAME=VALUE.",
            facts={"faults": wrong, "inputs": sorted(workflow.inputs)},
        )
    return {name: one.default for name, one in workflow.inputs.items()} | dict(given)


def _started(workflow: WorkflowFile, known: Known) -> Verdict:
    """Whether the event starts the workflow at all."""
    source = known.source
    event = source.event if source.event in EVENTS else "webhook"
    said = _event_sentence(source)
    if workflow.on is None or event == "manual":
        return Verdict(True, said)
    trigger: Trigger | None = getattr(workflow.on, event)
    if trigger is None:
        events = [name for name in EVENTS if getattr(workflow.on, name) is not None]
        return Verdict(False, f"the workflow is for {' and '.join(events)}, not for {source.event}")
    return _on_ref(trigger, known, said) if event == "push" else _on_paths(trigger, known, said)


def _on_ref(trigger: Trigger, known: Known, said: str) -> Verdict:
    branch, tag = branch_of(known.source), tag_of(known.source)
    noun, name, patterns = ("tag", tag, trigger.tags) if tag else ("branch", branch, trigger.branches)
    others = trigger.branches if tag else trigger.tags
    if patterns and matching(name, patterns) is None:
        return Verdict(False, f"the {noun} {name or 'of this push'} does not match {' '.join(patterns)}")
    if not patterns and others:
        other = "branches" if tag else "tags"
        return Verdict(False, f"the workflow is only for {other} that match {' '.join(others)}")
    return _on_paths(trigger, known, said)


def _on_paths(trigger: Trigger, known: Known, said: str) -> Verdict:
    if not trigger.paths:
        return Verdict(True, said)
    paths = known.source.changed_paths
    unchanged = paths is not None and not any(matching(path, trigger.paths) for path in paths)
    told = changed_sentence(known, trigger.paths)
    return Verdict(False, told) if unchanged else Verdict(True, f"{said}; {told}")


def _event_sentence(source: Source) -> str:
    where = branch_of(source) or tag_of(source) or source.ref
    if source.event == "pull_request" and source.pull_request is not None:
        return f"pull request {source.pull_request}"
    return f"{source.event} of {where}" if where else source.event


def _verdict(job: Job, known: Known, started: Verdict, planned: Mapping[str, list[PlannedJob]]) -> Verdict:
    if not started.yes:
        return started
    missing = [need.name for need in job.needs if need.name not in planned]
    if missing:
        return Verdict(False, f"{' and '.join(missing)}, which it needs, is left out")
    if job.condition is None:
        return started
    condition, _ = job.condition
    seen = condition.seen(known)
    told = f"if: {condition.text}" + (f" ({seen})" if seen else "")
    return (
        Verdict(True, f"{started.why}; {told}")
        if condition.holds(known)
        else Verdict(False, f"the condition does not hold, {told}")
    )


def _without_secrets(why: str) -> str:
    return f"{why}; without its secrets, because the change comes from a fork"


def _legs(name: str, job: Job, known: Known) -> Iterator[tuple[str, Known]]:
    if job.matrix is None:
        yield name, known
        return
    names = job.matrix.names
    for one in combinations(job.matrix):
        yield leg_name(name, one, names), _with(known, one)


def _with(known: Known, combination: Combination) -> Known:
    return Known(known.source, known.inputs, combination)


def _in_order(jobs: Mapping[str, Job]) -> Iterator[str]:
    """Each job after those that it needs."""
    done: dict[str, None] = {}
    left = dict(jobs)
    while left:
        ready = [name for name, job in left.items() if all(need.name in done for need in job.waits_for)]
        for name in ready:
            done[name] = None
            del left[name]
            yield name


def _refuse_too_many(jobs: tuple[PlannedJob, ...]) -> None:
    if len(jobs) > MOST_JOBS:
        raise PlanRefused(
            f"The plan has {len(jobs):,} jobs, and {MOST_JOBS:,} is the most.",
            todo="Take values out of a matrix.",
            facts={"jobs": len(jobs), "most": MOST_JOBS},
        )
