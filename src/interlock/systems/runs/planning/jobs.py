"""One job of a workflow as one of a plan: its settings, and the input of its task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from interlock.systems.runs.planning.kinds import Placed
from interlock.systems.runs.planning.model import Cache, Defaults, Job, Retry, Step, WorkflowFile
from interlock.systems.runs.planning.variables import Known, environment
from interlock.wire.jobs import SHELL, RetryRule
from interlock.wire.runs import PlannedJob


@dataclass(frozen=True, slots=True)
class Clone:
    """Where runners find the repository, where that is not what the source says."""

    url: str = ""
    secret: str = ""
    """The name of the secret with which they fetch it."""


def planned_job(workflow: WorkflowFile, job: Job, name: str, known: Known, clone: Clone) -> PlannedJob:
    """The job of that name, without what it needs and why it is there."""
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
        secrets=secrets,
    )


@dataclass(frozen=True, slots=True)
class _Settings:
    """What a job says, or else what the workflow says for all."""

    job: Job
    defaults: Defaults

    def value(self, name: str) -> Any:
        own = getattr(self.job, name)
        return getattr(self.defaults, name) if own is None else own

    def text(self, name: str, known: Known) -> str:
        return _filled(self.value(name), known)


def _shell_input(
    workflow: WorkflowFile, job: Job, settings: _Settings, name: str, known: Known, clone: Clone
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


def _cache(cache: Cache, known: Known) -> dict[str, Any]:
    made = {
        "key": _filled(cache.key, known),
        "path": [_filled(path, known) for path in cache.path],
        "files": [_filled(path, known) for path in cache.files],
        "restore_keys": [_filled(key, known) for key in cache.restore_keys],
    }
    return {name: value for name, value in made.items() if value}


def _step(step: Step, known: Known) -> dict[str, Any]:
    made = {
        "run": _filled(step.run, known),
        "name": _filled(step.name, known),
        "env": {key: text.template.filled(known) for key, text in step.env.items()},
        "workdir": _filled(step.workdir, known),
        "timeout_s": step.timeout,
        "continue_on_error": step.continue_on_error,
    }
    return {key: value for key, value in made.items() if value}


def _filled(text: Placed | None, known: Known) -> str:
    return "" if text is None else text.template.filled(known)


def _rule(rule: Retry) -> RetryRule:
    pauses = {
        "first_pause_s": rule.first_pause,
        "factor": rule.factor,
        "longest_pause_s": rule.longest_pause,
    }
    return RetryRule(
        retries=rule.retries, **{name: float(value) for name, value in pauses.items() if value is not None}
    )
