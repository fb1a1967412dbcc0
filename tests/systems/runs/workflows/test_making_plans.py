"""From a workflow and a change to a plan: which jobs there are and why, and why the others are not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from interlock.errors import PlanRefused
from interlock.systems.runs.workflows import PlanRequest
from interlock.systems.runs.workflows.git import WorkflowPlanner
from interlock.systems.runs.workflows.planner import group_of, plan_of
from interlock.systems.runs.workflows.workflow import read_workflow, spec_of_file
from interlock.wire.jobs import RetryRule
from interlock.wire.runs import Plan, PlannedJob, RunSpec, Source

MAIN = Source(
    event="push", repository="shop/web", ref="refs/heads/main", sha="f" * 40, changed_paths=("src/a.py",)
)


def planned(text: str, source: Source = MAIN, **inputs: str) -> Plan:
    return plan_of(read_workflow(text), source, inputs)


def names(plan: Plan) -> list[str]:
    return [job.name for job in plan.jobs]


def left_out(plan: Plan) -> dict[str, str]:
    return {job.name: job.why for job in plan.skipped}


def job_named(plan: Plan, name: str) -> PlannedJob:
    return next(job for job in plan.jobs if job.name == name)


def input_of(plan: Plan, name: str) -> Any:
    return msgspec.json.decode(job_named(plan, name).input)


STEPS = "steps: [{run: make}]"


def test_a_matrix_is_one_job_for_each_combination_and_its_dependents_need_all() -> None:
    plan = planned(
        f"""
jobs:
  test:
    matrix: {{python: ["3.11", "3.12"], system: [linux]}}
    {STEPS}
  pack: {{needs: test, {STEPS}}}
"""
    )
    assert names(plan) == ["test (3.11, linux)", "test (3.12, linux)", "pack"]
    assert job_named(plan, "pack").needs == ("test (3.11, linux)", "test (3.12, linux)")


def test_include_adds_to_combinations_that_agree_and_otherwise_makes_its_own() -> None:
    plan = planned(
        """
jobs:
  test:
    matrix:
      python: ["3.11", "3.12"]
      system: [linux, macos]
      exclude: [{system: macos, python: "3.11"}]
      include:
        - {python: "3.12", system: linux, coverage: "on"}
        - {python: "3.13", system: linux}
    runs-on: ["${{ matrix.system }}"]
    steps: [{run: "test ${{ matrix.python }} ${{ matrix.coverage }}"}]
"""
    )
    assert names(plan) == [
        "test (3.11, linux)",
        "test (3.12, linux, on)",
        "test (3.12, macos)",
        "test (3.13, linux)",
    ]
    assert [input_of(plan, name)["steps"][0]["run"] for name in names(plan)] == [
        "test 3.11 ",
        "test 3.12 on",
        "test 3.12 ",
        "test 3.13 ",
    ]
    assert job_named(plan, "test (3.12, macos)").labels == ("macos",)


def test_a_plan_gives_a_reason_for_every_job_and_for_every_job_left_out() -> None:
    plan = planned(
        f"""
jobs:
  lint: {{{STEPS}}}
  test: {{if: "changed('src/**')", {STEPS}}}
  docs: {{if: "changed('docs/**')", {STEPS}}}
  publish: {{needs: [test, docs], {STEPS}}}
  notify: {{needs: test, after: docs, {STEPS}}}
"""
    )
    assert {job.name: job.why for job in plan.jobs} == {
        "lint": "push of main",
        "test": "push of main; if: changed('src/**') (src/a.py has changed, which matches src/**)",
        "notify": "push of main",
    }
    assert left_out(plan) == {
        "docs": "the condition does not hold, if: changed('docs/**') "
        "(no changed path matches docs/** (there are 1))",
        "publish": "docs, which it needs, is left out",
    }
    assert job_named(plan, "notify").needs == ("test",)


@pytest.mark.parametrize(
    ("on", "source", "why"),
    [
        ("push", {"event": "pull_request"}, "the workflow is for push, not for pull_request"),
        ("{push: {branches: 'release/*'}}", {}, "the branch main does not match release/*"),
        ("{push: {tags: v*}}", {}, "the workflow is only for tags that match v*"),
        ("{push: {tags: v*}}", {"ref": "refs/tags/x"}, "the tag x does not match v*"),
        (
            "{push: {branches: main}}",
            {"ref": "refs/tags/v1"},
            "the workflow is only for branches that match main",
        ),
        ("{push: {paths: docs/}}", {}, "no changed path matches docs/ (there are 1)"),
        ("pull_request", {"event": "custom"}, "the workflow is for pull_request, not for custom"),
    ],
)
def test_an_event_that_does_not_start_the_workflow_leaves_every_job_out(
    on: str, source: dict[str, Any], why: str
) -> None:
    plan = planned(
        f"on: {on}\njobs: {{a: {{{STEPS}}}, b: {{{STEPS}}}}}", msgspec.structs.replace(MAIN, **source)
    )
    assert plan.jobs == ()
    assert left_out(plan) == {"a": why, "b": why}


@pytest.mark.parametrize(
    ("on", "source"),
    [
        ("push", {}),
        ("{push: {branches: [main], tags: [v*]}}", {}),
        ("{push: {branches: [main], tags: [v*]}}", {"ref": "refs/tags/v1"}),
        ("{push: {paths: docs/}}", {"changed_paths": None}),
        ("{push: }", {"event": "manual"}),
        ("webhook", {"event": "custom"}),
    ],
)
def test_an_event_that_starts_it_does(on: str, source: dict[str, Any]) -> None:
    plan = planned(f"on: {on}\njobs: {{a: {{{STEPS}}}}}", msgspec.structs.replace(MAIN, **source))
    assert names(plan) == ["a"]


def test_values_from_the_change_reach_the_steps_only_as_environment_variables() -> None:
    evil = Source(event="push", ref="refs/heads/$(rm -rf ~)", sha="f" * 40, repository="shop/web")
    plan = planned('env: {WHERE: "on ${{ branch }}"}\njobs: {a: {steps: [{run: "echo $WHERE"}]}}', evil)
    given = input_of(plan, "a")
    assert given["steps"] == [{"run": "echo $WHERE"}]
    assert given["env"]["WHERE"] == "on $(rm -rf ~)"
    assert given["env"]["INTERLOCK_BRANCH"] == "$(rm -rf ~)"


def test_a_workflow_job_with_steps_becomes_a_planned_job_with_input_for_the_shell_task() -> None:
    plan = planned(
        """
env: {A: 1, B: 1}
defaults: {workdir: web, queue: ci, timeout: 5m, runs-on: linux, retries: 2}
jobs:
  a:
    env: {B: 2}
    retry: {infra: {retries: 3, first-pause: 2s}}
    artifacts: {name: out, path: out/}
    cache: {key: pip, files: "*.lock", path: .cache, restore-keys: [pip-, p]}
    shards: 2
    priority: 5
    steps:
      - {name: one, run: make, env: {C: 3}, workdir: x, timeout: 9, continue-on-error: true}
  b: {checkout: false, runs-on: [], timeout: 1m, steps: [{run: make}]}
"""
    )
    given = input_of(plan, "a")
    own = {key: given["env"][key] for key in ("A", "B", "CI", "INTERLOCK_JOB")}
    assert own == {"A": "1", "B": "2", "CI": "true", "INTERLOCK_JOB": "a"}
    del given["env"]
    assert given == {
        "steps": [
            {
                "run": "make",
                "name": "one",
                "env": {"C": "3"},
                "workdir": "x",
                "timeout_s": 9.0,
                "continue_on_error": True,
            }
        ],
        "workdir": "web",
        "checkout": {"repository": "shop/web", "sha": "f" * 40, "ref": "refs/heads/main"},
        "artifacts": [{"name": "out", "path": ["out/"]}],
        "caches": [{"key": "pip", "files": ["*.lock"], "path": [".cache"], "restore_keys": ["pip-", "p"]}],
    }
    assert input_of(plan, "b")["workspace"] is True, "without a checkout the steps begin in an empty folder"
    a, b = plan.jobs
    assert (a.queue, a.timeout_s, a.retries, a.labels, a.worker_count, a.priority) == (
        ("ci", 300.0, 2, ("linux",), 2, 5)
    )
    assert a.retry == {"infra": RetryRule(retries=3, first_pause_s=2.0)}
    assert (b.labels, b.timeout_s, "checkout" in input_of(plan, "b")) == ((), 60.0, False)


def test_a_job_can_be_a_python_task() -> None:
    plan = planned("jobs: {a: {task: shop.pack, input: {size: 3}, optional: true}}")
    (job,) = plan.jobs
    assert (job.task, msgspec.json.decode(job.input), job.required) == ("shop.pack", {"size": 3}, False)


def test_a_plan_notes_that_a_job_of_a_fork_runs_without_its_secrets() -> None:
    text = f"jobs: {{a: {{secrets: [TOKEN], {STEPS}}}}}"
    assert planned(text).jobs[0].secrets == ("TOKEN",)
    (job,) = planned(text, msgspec.structs.replace(MAIN, from_fork=True)).jobs
    assert job.why == "push of main; without its secrets, because the change comes from a fork"


INPUTS = f"""
inputs: {{where: {{options: [here, there], default: here}}, who: {{required: true}}}}
jobs: {{a: {{if: "inputs.where == 'there'", {STEPS}}}}}
"""


def test_inputs_have_defaults_and_conditions_see_them() -> None:
    assert names(planned(INPUTS, who="me")) == []
    assert names(planned(INPUTS, who="me", where="there")) == ["a"]


def test_inputs_that_do_not_fit_are_all_reported() -> None:
    with pytest.raises(PlanRefused) as refused:
        planned(INPUTS, where="nowhere", were="x")
    assert refused.value.facts["faults"] == [
        "where cannot be 'nowhere', only here or there",
        "there is no input 'were'; did you mean where?",
        "the input who is missing",
    ]


@pytest.mark.parametrize(
    ("written", "group"),
    [
        ("", None),
        ("concurrency: false", ""),
        ("concurrency: true", None),
        ("concurrency: {group: x, cancel: false}", ""),
        ("concurrency: {group: 'deploy ${{ branch }}'}", "deploy main"),
    ],
)
def test_the_group_of_runs_that_supersede_each_other(written: str, group: str | None) -> None:
    assert group_of(read_workflow(f"{written}\njobs: {{a: {{{STEPS}}}}}"), MAIN) == group


def test_a_plan_with_too_many_jobs_is_refused() -> None:
    values = ", ".join(map(str, range(999)))
    jobs = "\n".join(f"  j{n}: {{matrix: {{a: [{values}]}}, {STEPS}}}" for n in range(11))
    with pytest.raises(PlanRefused, match="10,989 jobs, and 10,000 is the most"):
        planned(f"jobs:\n{jobs}")


def test_the_order_of_the_file_is_the_order_of_the_plan() -> None:
    plan = planned(f"jobs: {{last: {{needs: first, {STEPS}}}, first: {{{STEPS}}}}}")
    assert names(plan) == ["last", "first"]


async def test_the_planner_makes_the_plan_of_the_file_in_the_request() -> None:
    spec = spec_of_file(f"name: ci\njobs: {{a: {{{STEPS}}}}}", "x.yml", MAIN, {})
    assert (spec.workflow, spec.planner, spec.concurrency_group) == ("ci", "workflow", None)
    plan = await WorkflowPlanner().plan(PlanRequest(run_id="r_1", spec=spec))
    assert names(plan) == ["a"]


async def test_the_planner_refuses_a_request_without_a_file() -> None:
    with pytest.raises(PlanRefused, match="no workflow file in the request"):
        await WorkflowPlanner().plan(PlanRequest(run_id="r_1", spec=RunSpec(planner="workflow")))


def test_a_file_with_faults_is_refused_before_there_is_a_run() -> None:
    with pytest.raises(PlanRefused, match=r"ci\.yml:1:1"):
        spec_of_file("nope: 1", "ci.yml", MAIN, {})
