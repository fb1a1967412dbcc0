"""Validation of a plan: whether it can be carried out, and its permissions. Pure.

All faults of a plan are listed in one error. The other rules hold for every planner:

Forks. A change from a fork runs only shell steps, in the queue and with the labels that its trigger names.
It receives no secrets and uses no environment.

Secrets and environments. Each job is checked against the policy with the facts of the run: its repository,
its ref, and the environment that the plan names. Statements of a file or an input about the repository are
ignored. The check is repeated when a runner is given the job.

Approval. A change from a fork, and a plan that uses an environment with `approval`, wait for an operator.

Why: decision 0291.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from msgspec.structs import replace

from interlock.errors import InterlockError, InvalidRun, InvalidSignal, PlanRefused
from interlock.lifecycles.durations import Durations
from interlock.store.ranking import MAX_PRIORITY, MIN_PRIORITY
from interlock.store.validation import MAX_LABEL
from interlock.systems.orchestrator.body import Provenance
from interlock.systems.orchestrator.planned_approvals import question_of
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.submission import MAX_DELAY_S, check_spec, check_specs
from interlock.systems.orchestrator.vault import SecretPolicy, SecretRequester, checkout_secret
from interlock.systems.orchestrator.waits import check_wait
from interlock.systems.runs.body import RunBody
from interlock.wire.jobs import SHELL, JobSpec
from interlock.wire.runs import AwaitedApproval, Plan, PlannedApproval, PlannedJob, RunSpec
from interlock.wire.waits import WaitRequest

MAX_JOBS = 10_000
MAX_NEEDS = 250_000
MAX_NAME = 200
MAX_PLAN_BYTES = 32_000_000
MAX_RUN_LABELS = 8
MAX_TEXT = 100_000
MOST_FAULTS = 50
"""Maximum number of faults to list."""


_REMEMBERED_JOBS = 1_000
"""Maximum number of jobs of a plan that is remembered."""
_flawless: deque[tuple[Plan, OrchestratorSettings]] = deque(maxlen=8)
"""The last plans without a fault: a workflow has the same plan from push to push."""


def check_plan(plan: Plan, settings: OrchestratorSettings) -> None:
    """Raise an error with all faults of a plan."""
    for known, by in _flawless:
        if by is settings and known == plan:
            return
    faults = list(plan_faults(plan, settings))
    if not faults and len(plan.jobs) + len(plan.skipped) <= _REMEMBERED_JOBS:
        _flawless.appendleft((plan, settings))
    if faults:
        listed = faults[:MOST_FAULTS]
        more = f"; and {len(faults) - len(listed)} more" if len(faults) > len(listed) else ""
        raise PlanRefused(
            "The plan cannot be carried out: " + "; ".join(listed) + more + ".",
            todo="Correct the plan and submit it again; no job was made.",
            facts={"faults": listed, "number": len(faults)},
        )


def plan_faults(plan: Plan, settings: OrchestratorSettings) -> Iterator[str]:
    """Yield all faults of a plan, in words."""
    if (number := len(plan.jobs) + len(plan.skipped)) > MAX_JOBS:
        yield f"it has {number} jobs, at most {MAX_JOBS} are taken"
        return
    if (edges := sum([len(each.needs) for each in plan.jobs])) > MAX_NEEDS:
        yield f"its jobs need each other {edges} times, at most {MAX_NEEDS} times are taken"
        return
    if (weight := sum([len(each.input) for each in plan.jobs])) > MAX_PLAN_BYTES:
        yield f"the inputs of its jobs have {weight} bytes, at most {MAX_PLAN_BYTES} are taken"
    if plan.timeout_s is not None and not (
        math.isfinite(plan.timeout_s) and 0 < plan.timeout_s <= MAX_DELAY_S
    ):
        yield f"timeout_s is {plan.timeout_s:g} and must be more than 0, and at most {MAX_DELAY_S:g}"
    counts = Counter([each.name for each in plan.jobs])
    yield from (f"there are {n} jobs called {name!r}" for name, n in counts.items() if n > 1)
    if len(counts) == len(plan.jobs) and _is_flawless(plan.jobs, settings):
        return
    skipped = {each.name for each in plan.skipped}
    for planned in plan.jobs:
        yield from _job_faults(planned, settings)
        yield from _needs_faults(planned, counts, skipped)
    others = {each.name: [name for name in each.needs if name != each.name] for each in plan.jobs}
    if cycle := cycle_in(others):
        yield "these jobs wait for each other: " + " → ".join(cycle)


def _is_flawless(jobs: Sequence[PlannedJob], settings: OrchestratorSettings) -> bool:
    """Return whether jobs have none of the faults below.

    False if in doubt. The jobs have different names. Alike jobs are checked once, and jobs that need only
    earlier ones cannot wait for each other.
    """
    earlier: set[str] = set()
    for planned in jobs:
        name = planned.name
        if planned.environment or planned.approval is not None or not earlier.issuperset(planned.needs):
            return False
        if not (1 <= len(name) <= MAX_NAME and name.isprintable()):
            return False
        earlier.add(name)
    try:
        check_specs([spec_of(planned) for planned in jobs], settings)
    except InterlockError:
        return False
    return True


def _job_faults(planned: PlannedJob, settings: OrchestratorSettings) -> Iterator[str]:
    if not (1 <= len(planned.name) <= MAX_NAME and planned.name.isprintable()):
        yield f"the name of a job has 1 to {MAX_NAME} printable characters, not {planned.name[:MAX_NAME]!r}"
    if len(planned.environment) > MAX_NAME or not planned.environment.isprintable():
        yield f"{planned.name[:MAX_NAME]}: an environment has at most {MAX_NAME} printable characters"
    if planned.approval is not None:
        yield from (f"{planned.name[:MAX_NAME]}: {fault}" for fault in _approval_faults(planned.approval))
    try:
        check_spec(spec_of(planned), settings)
    except InterlockError as error:
        faults = error.facts.get("faults")
        text = "; ".join(map(str, faults)) if isinstance(faults, list) else error.sentence.rstrip(".")
        yield f"{planned.name}: {text}"


def _approval_faults(approval: PlannedApproval) -> Iterator[str]:
    try:
        check_wait(
            WaitRequest(
                token="",
                runner_id="",
                question=question_of(approval),
                timeout_s=approval.timeout_s,
            )
        )
    except InvalidSignal as error:
        yield error.sentence.rstrip(".")


def _needs_faults(planned: PlannedJob, known: Mapping[str, int], skipped: set[str]) -> Iterator[str]:
    for name in dict.fromkeys(planned.needs):
        if name == planned.name:
            yield f"{planned.name} needs itself"
        elif name not in known:
            what = "the plan leaves out" if name in skipped else "is not in the plan"
            yield f"{planned.name} needs {name!r}, which {what}"


def cycle_in(needs: Mapping[str, Iterable[str]]) -> list[str]:
    """Return some jobs that wait for each other, from one back to itself.

    It is empty if there are none.
    """
    order = TopologicalSorter({name: [each for each in of if each in needs] for name, of in needs.items()})
    try:
        order.prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1][:0:-1]  # from each job to one that it needs, not yet closed
        first = cycle.index(min(cycle))
        return [*cycle[first:], *cycle[: first + 1]]
    return []


def spec_of(
    planned: PlannedJob,
    *,
    priority: int = 0,
    trace: dict[str, str] | None = None,
    from_fork: bool = False,
) -> JobSpec:
    """Return the job spec for a job of a plan.

    The priority of its run is added. Secrets are withheld from a change from a fork; this is decided here,
    for every planner.
    """
    return JobSpec(
        task=planned.task,
        input=planned.input,
        queue=planned.queue,
        priority=max(MIN_PRIORITY, min(MAX_PRIORITY, planned.priority + priority))
        if priority
        else planned.priority,
        labels=planned.labels,
        worker_count=planned.worker_count,
        description=planned.name,
        timeout_s=planned.timeout_s,
        job_timeout_s=planned.job_timeout_s,
        retries=planned.retries,
        retry=planned.retry,
        losses=planned.losses,
        limits=planned.limits,
        weight=planned.weight,
        secrets=planned.secrets,
        secrets_withheld=from_fork,
        trace=trace or {},
    )


def check_run(spec: RunSpec, planners: Sequence[str], settings: OrchestratorSettings) -> None:
    """Raise an error with all faults of a run spec, before it is stored."""
    faults = list(_run_faults(spec, planners))
    if faults:
        raise InvalidRun(
            "The run cannot be accepted: " + "; ".join(faults) + ".",
            todo="Correct it and submit it again; nothing was stored.",
            facts={"workflow": spec.workflow, "faults": faults},
        )
    if spec.plan is not None:
        check_plan(spec.plan, settings)


def _run_faults(spec: RunSpec, planners: Sequence[str]) -> Iterator[str]:
    if spec.planner not in planners:
        yield f"there is no planner {spec.planner!r}, but {', '.join(sorted(planners))}"
    if spec.planner == "plan" and spec.plan is None:
        yield "it has no plan, and names no planner that would make one"
    if spec.planner != "plan" and spec.plan is not None:
        yield f"it has a plan, and names the planner {spec.planner} to make one"
    if len(spec.workflow) > MAX_NAME or not (spec.workflow.isprintable()):
        yield f"the name of a workflow has at most {MAX_NAME} printable characters"
    if not MIN_PRIORITY <= spec.priority <= MAX_PRIORITY:
        yield f"the priority is {spec.priority} and must be {MIN_PRIORITY} to {MAX_PRIORITY}"
    if len(set(spec.labels)) > MAX_RUN_LABELS:
        yield f"there are {len(set(spec.labels))} labels, at most {MAX_RUN_LABELS}"
    if not all(1 <= len(label) <= MAX_LABEL and label.isprintable() for label in spec.labels):
        yield f"a label has 1 to {MAX_LABEL} printable characters"
    yield from _text_faults(spec)
    reads_commit = spec.planner == "workflow" and not spec.definition.strip()
    if spec.source.from_fork and reads_commit and not spec.source.sha:
        yield "a change from a fork is approved for one commit, and it names none (source.sha)"


def _text_faults(spec: RunSpec) -> Iterator[str]:
    source = spec.source
    texts = (
        source.repository,
        source.ref,
        source.sha,
        source.base_sha,
        source.event,
        source.actor,
        source.title,
    )
    if sum(map(len, texts)) > MAX_TEXT:
        yield f"its source has at most {MAX_TEXT} characters"
    if len(spec.definition) > MAX_TEXT:
        yield f"its definition has at most {MAX_TEXT} characters"
    if sum(map(len, (*spec.inputs, *spec.inputs.values()))) > MAX_TEXT:
        yield f"its inputs have at most {MAX_TEXT} characters"
    if sum(map(len, source.changed_paths or ())) > MAX_TEXT:
        yield f"the paths that have changed have at most {MAX_TEXT} characters; give none when there are more"


FORK, ENVIRONMENT = "fork", "environment"
"""Subjects of an approval."""


def origin_of(body: RunBody, planned: PlannedJob) -> Provenance:
    """Return the provenance of a job of the run."""
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
    """Return a job of the plan.

    One of a fork gets the queue and labels of its trigger.
    """
    terms = body.fork_terms
    if terms is None:
        return planned
    where = f"queue {terms.queue}" + (f" with {', '.join(terms.labels)}" if terms.labels else "")
    prefix = f"{planned.why}; " if planned.why else ""
    why = f"{prefix}from a fork: {where}, without secrets, regardless of its file"
    return replace(planned, queue=terms.queue, labels=terms.labels, environment="", why=why)


def seconds_for_approvals(jobs: Iterable[PlannedJob], durations: Durations) -> float:
    """Return for how long jobs of a plan may wait for approvals.

    They may wait for one after the other.
    """
    approvals = [job.approval for job in jobs if job.approval is not None]
    return float(
        sum(durations.approval_timeout_s if one.timeout_s is None else one.timeout_s for one in approvals)
    )


def awaited(body: RunBody, jobs: Iterable[PlannedJob], policy: SecretPolicy) -> AwaitedApproval | None:
    """Return the approval that a plan still needs; None if there is none."""
    used = {job.environment for job in jobs}
    guarded = {name for name, one in policy.environments.items() if one.approval and name in used}
    approved = {name for approval in body.approvals for name in approval.environments}
    left = tuple(sorted(guarded - approved))
    return AwaitedApproval(reason=ENVIRONMENT, environments=left) if left else None


def awaited_first(body: RunBody) -> AwaitedApproval | None:
    """Return the approval that a change from a fork needs first, or None."""
    terms = body.fork_terms
    if terms is None or not terms.approval or any(each.reason == FORK for each in body.approvals):
        return None
    return AwaitedApproval(reason=FORK)


def check_admitted(body: RunBody, jobs: Iterable[PlannedJob], policy: SecretPolicy) -> None:
    """Raise an error with every job that the run is not permitted to have."""
    if body.fork_terms is None:
        jobs = [planned for planned in jobs if planned.environment or planned.secrets]
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
    requester = SecretRequester(task=planned.task, queue=planned.queue, origin=origin, checkout=checkout)
    for secret in planned.secrets:
        if fault := policy.fault(secret, requester):
            yield f"{name}: the secret {secret} is not for this job: {fault}"
