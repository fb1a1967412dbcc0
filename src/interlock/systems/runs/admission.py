"""What a run may do with a plan, whichever planner made it. Pure.

Forks. A change from a fork runs shell steps and nothing else, in the queue and with the labels that its
trigger names. It is given no secrets and uses no environment.

Secrets and environments. Each job is held to the policy with what the run itself knows: its repository, its
ref, and the environment that the plan names. What a file or an input says about the repository counts for
nothing. The same is asked again when a runner is given the job.

Approval. A change from a fork, and a plan that uses an environment with `approval`, wait for an operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from interlock.errors import PlanRefused
from interlock.systems.orchestrator.body import Provenance
from interlock.systems.orchestrator.vault import Asker, SecretPolicy, checkout_secret
from interlock.systems.runs.body import RunBody
from interlock.wire.jobs import SHELL
from interlock.wire.runs import AwaitedApproval, PlannedJob

FORK, ENVIRONMENT = "fork", "environment"
"""What can have to be approved."""
MOST_FAULTS = 50


def origin_of(body: RunBody, planned: PlannedJob) -> Provenance:
    """Return where a job of the run comes from."""
    source = body.spec.source
    return Provenance(
        repository=source.repository,
        ref=source.ref,
        environment="" if source.from_fork else planned.environment,
        pull_request=source.pull_request,
        from_fork=source.from_fork,
        claimed=body.claimed,
    )


def confined(planned: PlannedJob, body: RunBody) -> PlannedJob:
    """Return a job of the plan as it is made: one of a fork has the queue and the labels of its trigger."""
    terms = body.fork_terms
    if terms is None:
        return planned
    where = f"queue {terms.queue}" + (f" with {', '.join(terms.labels)}" if terms.labels else "")
    told = f"{planned.why}; " if planned.why else ""
    why = f"{told}from a fork: {where}, without secrets, whatever its file says"
    return replace(planned, queue=terms.queue, labels=terms.labels, environment="", why=why)


def awaited(body: RunBody, jobs: Iterable[PlannedJob], policy: SecretPolicy) -> AwaitedApproval | None:
    """Return what of a plan an operator has to approve, and has not; None when nothing is left."""
    used = {job.environment for job in jobs}
    guarded = {name for name, one in policy.environments.items() if one.approval and name in used}
    approved = {name for approval in body.approvals for name in approval.environments}
    left = tuple(sorted(guarded - approved))
    return AwaitedApproval(reason=ENVIRONMENT, environments=left) if left else None


def awaited_first(body: RunBody) -> AwaitedApproval | None:
    """Return what an operator has to approve before a run is planned at all: a change from a fork."""
    terms = body.fork_terms
    if terms is None or not terms.approval or any(each.reason == FORK for each in body.approvals):
        return None
    return AwaitedApproval(reason=FORK)


def check_admitted(body: RunBody, jobs: Iterable[PlannedJob], policy: SecretPolicy) -> None:
    """Raise with every job that the run may not have."""
    faults = [fault for planned in jobs for fault in _faults(body, planned, policy)]
    if faults:
        listed = faults[:MOST_FAULTS]
        more = f"; and {len(faults) - len(listed)} more" if len(faults) > len(listed) else ""
        raise PlanRefused(
            "The plan is not allowed: " + "; ".join(listed) + more + ".",
            todo="Change the workflow file, or the policy in interlock.toml of the server; no job was made.",
            facts={"faults": listed, "number": len(faults)},
        )


def _faults(body: RunBody, planned: PlannedJob, policy: SecretPolicy) -> Iterator[str]:
    name = f"{planned.name} (line {planned.line})" if planned.line else planned.name
    if body.fork_terms is not None:
        if planned.task != SHELL:
            yield f"{name}: a change from a fork runs {SHELL} only, not the task {planned.task}"
        if planned.environment:
            yield f"{name}: a change from a fork uses no environment, not {planned.environment} either"
        return
    origin = origin_of(body, planned)
    if fault := policy.environment_fault(origin):
        yield f"{name}: {fault}"
        return
    checkout = checkout_secret(planned.task, planned.input)
    asker = Asker(task=planned.task, queue=planned.queue, origin=origin, checkout=checkout)
    for secret in planned.secrets:
        if fault := policy.fault(secret, asker):
            yield f"{name}: the secret {secret} is not for this job: {fault}"
