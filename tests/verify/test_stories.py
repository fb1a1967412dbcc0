"""A violation is told so that somebody who knows the tables can follow it."""

from __future__ import annotations

import pytest

from interlock.store.memory import MemoryStore
from interlock.testing.model_checker import check
from interlock_verification.environments import plan_named
from interlock_verification.models.job_world import JobWorld
from interlock_verification.models.plan import RunPlan
from interlock_verification.models.run_world import RunWorld


def test_two_orchestrators_and_a_store_that_does_not_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "_why_not", lambda *_: None)
    (violation,) = check(JobWorld(plan_named("race"))).violations
    template = (
        "An orchestrator decides, and has yet to commit: worker {} claims work and is granted 1.1 of job 1."
    )
    rows = (
        "  attempt 1.1: QUEUED → LEASED by grant",
        "  job: PENDING → RUNNING by allocate_resources",
    )
    assert violation.story == (
        (template.format(1), *rows),
        (template.format(2), *rows),
        ("An orchestrator commits its decision about job 1: a claim of worker 1.",),
        ("An orchestrator commits its decision about job 1: a claim of worker 2.",),
    )


def test_the_story_of_a_run_that_receives_no_messages_from_its_jobs_lists_every_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_named("run")
    assert isinstance(plan, RunPlan)
    monkeypatch.setattr(RunWorld, "_news", lambda *_: [])
    violation, *_ = check(RunWorld(plan)).violations
    assert violation.claim == "a run begins with its first attempt"
    assert [step[0] for step in violation.story] == [
        "The run asks for a plan.",
        "The run gets its plan.",
        "The run's order reaches job 1: it may begin.",
        "Worker 1 claims work and is granted 1.1 of job 1.",
    ]


def test_every_step_of_a_job_or_run_world_is_described_by_a_sentence() -> None:
    for name in ("first-job", "given-back", "race", "cancel", "run"):
        model = JobWorld(plan_named(name)) if name != "run" else RunWorld(_run(name))
        state = model.initial()
        for number in range(200):
            steps = list(model.steps(state))
            if not steps:
                break
            for done, after, _ in steps:
                sentence, *rows = model.tell(done, state, after)
                assert sentence[0].isupper()
                assert sentence.endswith(".")
                assert all(row.startswith("  ") for row in rows)
            state = model.canonical(steps[(number * 7 + 3) % len(steps)][1])


def _run(name: str) -> RunPlan:
    plan = plan_named(name)
    assert isinstance(plan, RunPlan)
    return plan
