"""Make a plan from a workflow and a change: the jobs and their reasons, and the jobs left out.

Why: decision 0180.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from interlock.errors import PlanRefused
from interlock.systems.runs.workflows import Clone
from interlock.systems.runs.workflows.expressions import (
    ChangeFacts,
    branch_of,
    changed_sentence,
    environment,
    matching,
    tag_of,
)
from interlock.systems.runs.workflows.field_types import PlacedTemplate
from interlock.systems.runs.workflows.model import (
    Combination,
    Defaults,
    Trigger,
    WorkflowApproval,
    WorkflowCache,
    WorkflowFile,
    WorkflowJob,
    WorkflowRetry,
    WorkflowStep,
    combinations,
    leg_name,
)
from interlock.systems.runs.workflows.schema import EVENTS
from interlock.text import nearest
from interlock.wire.access import Role
from interlock.wire.jobs import SHELL, RetryRule
from interlock.wire.runs import Plan, PlannedApproval, PlannedJob, SkippedJob, Source


def planned_job(
    workflow: WorkflowFile, job: WorkflowJob, name: str, known: ChangeFacts, clone: Clone
) -> PlannedJob:
    """Return the job of that name, without its needs and its reason."""
    settings = _Settings(job, workflow.defaults)
    secrets = job.secrets
    if job.task:
        task, given = job.task, {} if job.input is None else job.input
    else:
        task, given = SHELL, _shell_input(workflow, job, settings, name, known, clone)
        if (secret := given.get("checkout", {}).get("secret")) is not None:
            secrets = tuple(dict.fromkeys((*secrets, secret)))
    return PlannedJob(
        name=name,
        task=task,
        environment=job.environment,
        approval=None if job.approval is None else _approval(job.approval, known),
        line=job.place.line,
        input=msgspec.Raw(msgspec.json.encode(given)),
        required=not job.optional,
        queue=settings.text("queue", known) or "default",
        priority=settings.value("priority") or 0,
        labels=tuple(label.template.filled(known) for label in settings.value("runs_on") or ()),
        worker_count=job.shards,
        timeout_s=settings.value("timeout"),
        job_timeout_s=settings.value("job_timeout"),
        retries=settings.value("retries"),
        retry={name: _rule(rule) for name, rule in (settings.value("retry") or {}).items()},
        losses=settings.value("losses"),
        limits=tuple(limit.template.filled(known) for limit in settings.value("limits") or ()),
        weight=settings.value("weight") or 1,
        secrets=secrets,
    )


def _approval(approval: WorkflowApproval, known: ChangeFacts) -> PlannedApproval:
    return PlannedApproval(
        question=_filled(approval.question, known),
        approvers=approval.approvers,
        role=Role(approval.role or Role.OPERATOR),
        timeout_s=approval.timeout,
    )


@dataclass(frozen=True, slots=True)
class _Settings:
    """The settings of a job, with the defaults of the workflow."""

    job: WorkflowJob
    defaults: Defaults

    def value(self, name: str) -> Any:
        own = getattr(self.job, name)
        return getattr(self.defaults, name) if own is None else own

    def text(self, name: str, known: ChangeFacts) -> str:
        return _filled(self.value(name), known)


def _shell_input(
    workflow: WorkflowFile, job: WorkflowJob, settings: _Settings, name: str, known: ChangeFacts, clone: Clone
) -> dict[str, Any]:
    source = known.source
    texts = {**workflow.env, **job.env}
    env = {"CI": "true", **environment(known), "INTERLOCK_JOB": name}
    made: dict[str, Any] = {
        "steps": [_step(step, known) for step in job.steps],
        "env": env | {key: text.template.filled(known) for key, text in texts.items()},
    }
    if workdir := settings.text("workdir", known):
        made["workdir"] = workdir
    repository = clone.url or source.repository
    if repository and (source.sha or source.ref) and settings.value("checkout") is not False:
        secret = settings.value("checkout_secret") or clone.secret
        where = {"repository": repository, "sha": source.sha, "ref": source.ref, "secret": secret}
        made["checkout"] = {key: value for key, value in where.items() if value}
    elif settings.value("checkout") is False:
        made["workspace"] = True
    if job.artifacts:
        made["artifacts"] = [
            {"name": _filled(one.name, known), "path": [_filled(path, known) for path in one.path]}
            for one in job.artifacts
        ]
    if job.cache:
        made["caches"] = [_cache(one, known) for one in job.cache]
    return made


def _cache(cache: WorkflowCache, known: ChangeFacts) -> dict[str, Any]:
    made = {
        "key": _filled(cache.key, known),
        "path": [_filled(path, known) for path in cache.path],
        "files": [_filled(path, known) for path in cache.files],
        "restore_keys": [_filled(key, known) for key in cache.restore_keys],
    }
    return {name: value for name, value in made.items() if value}


def _step(step: WorkflowStep, known: ChangeFacts) -> dict[str, Any]:
    made = {
        "run": _filled(step.run, known),
        "name": _filled(step.name, known),
        "env": {key: text.template.filled(known) for key, text in step.env.items()},
        "workdir": _filled(step.workdir, known),
        "timeout_s": step.timeout,
        "continue_on_error": step.continue_on_error,
    }
    return {key: value for key, value in made.items() if value}


def _filled(text: PlacedTemplate | None, known: ChangeFacts) -> str:
    return "" if text is None else text.template.filled(known)


def _rule(rule: WorkflowRetry) -> RetryRule:
    pauses = {
        "first_pause_s": rule.first_pause,
        "factor": rule.factor,
        "longest_pause_s": rule.longest_pause,
    }
    return RetryRule(
        retries=rule.retries, **{name: float(value) for name, value in pauses.items() if value is not None}
    )


MOST_JOBS = 10_000


@dataclass(frozen=True, slots=True)
class Inclusion:
    """The inclusion of a job in the plan, or the reason why it is left out."""

    yes: bool
    why: str


AS_SAID = Clone()
"""The repository is at the address of the source."""


def plan_of(
    workflow: WorkflowFile, source: Source, inputs: Mapping[str, str] = {}, *, clone: Clone = AS_SAID
) -> Plan:
    """Return the plan."""
    known = ChangeFacts(source, _inputs(workflow, inputs))
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
    """Return the concurrency group of a workflow.

    Return None for the default, empty for none.
    """
    concurrency = workflow.concurrency
    if concurrency is None:
        return None
    if not concurrency.cancel:
        return ""
    if concurrency.group is None:
        return None
    return concurrency.group.template.filled(ChangeFacts(source, _inputs(workflow, inputs)))


def _inputs(workflow: WorkflowFile, given: Mapping[str, str]) -> dict[str, str]:
    """Return the inputs with defaults; raise an error with all invalid ones."""
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


def _started(workflow: WorkflowFile, known: ChangeFacts) -> Inclusion:
    """Return whether the event starts the workflow."""
    source = known.source
    event = source.event if source.event in EVENTS else "webhook"
    sentence = _event_sentence(source)
    if workflow.on is None or event == "manual":
        return Inclusion(True, sentence)
    trigger: Trigger | None = getattr(workflow.on, event)
    if trigger is None:
        events = [name for name in EVENTS if getattr(workflow.on, name) is not None]
        return Inclusion(False, f"the workflow is for {' and '.join(events)}, not for {source.event}")
    return _on_ref(trigger, known, sentence) if event == "push" else _on_paths(trigger, known, sentence)


def _on_ref(trigger: Trigger, known: ChangeFacts, sentence: str) -> Inclusion:
    branch, tag = branch_of(known.source), tag_of(known.source)
    noun, name, patterns = ("tag", tag, trigger.tags) if tag else ("branch", branch, trigger.branches)
    others = trigger.branches if tag else trigger.tags
    if patterns and matching(name, patterns) is None:
        return Inclusion(False, f"the {noun} {name or 'of this push'} does not match {' '.join(patterns)}")
    if not patterns and others:
        other = "branches" if tag else "tags"
        return Inclusion(False, f"the workflow is only for {other} that match {' '.join(others)}")
    return _on_paths(trigger, known, sentence)


def _on_paths(trigger: Trigger, known: ChangeFacts, sentence: str) -> Inclusion:
    if not trigger.paths:
        return Inclusion(True, sentence)
    paths = known.source.changed_paths
    unchanged = paths is not None and not any(matching(path, trigger.paths) for path in paths)
    changed = changed_sentence(known, trigger.paths)
    return Inclusion(False, changed) if unchanged else Inclusion(True, f"{sentence}; {changed}")


def _event_sentence(source: Source) -> str:
    where = branch_of(source) or tag_of(source) or source.ref
    if source.event == "pull_request" and source.pull_request is not None:
        return f"pull request {source.pull_request}"
    return f"{source.event} of {where}" if where else source.event


def _verdict(
    job: WorkflowJob, known: ChangeFacts, started: Inclusion, planned: Mapping[str, list[PlannedJob]]
) -> Inclusion:
    if not started.yes:
        return started
    missing = [need.name for need in job.needs if need.name not in planned]
    if missing:
        return Inclusion(False, f"{' and '.join(missing)}, which it needs, is left out")
    if job.condition is None:
        return started
    condition, _ = job.condition
    seen = condition.seen(known)
    reason = f"if: {condition.text}" + (f" ({seen})" if seen else "")
    return (
        Inclusion(True, f"{started.why}; {reason}")
        if condition.holds(known)
        else Inclusion(False, f"the condition does not hold, {reason}")
    )


def _without_secrets(why: str) -> str:
    return f"{why}; without its secrets, because the change comes from a fork"


def _legs(name: str, job: WorkflowJob, known: ChangeFacts) -> Iterator[tuple[str, ChangeFacts]]:
    if job.matrix is None:
        yield name, known
        return
    names = job.matrix.names
    for one in combinations(job.matrix):
        yield leg_name(name, one, names), _facts_with(known, one)


def _facts_with(known: ChangeFacts, combination: Combination) -> ChangeFacts:
    return ChangeFacts(known.source, known.inputs, combination)


def _in_order(jobs: Mapping[str, WorkflowJob]) -> Iterator[str]:
    """Yield each job after those that it needs."""
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
