"""Which statuses a commit has: one of the run, and of its workflow files and jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.systems.orchestrator.house import ack, failed, stopped
from tests.systems.runs.reports.receiver import Receiver, Says
from tests.systems.runs.reports.reports import NOW, now, report, run_view
from tests.systems.runs.reports.told import SOURCE, Told, reporting, statuses

from interlock.systems.runs.reports.github import GithubReporter
from interlock.systems.runs.reports.report import DeliveryFailed, RunStatus
from interlock.systems.runs.settings import GithubReporting
from interlock.systems.runs.webhook_security import Secret
from interlock.wire.jobs import FailureView
from interlock.wire.runs import Approval, RunJobView, RunSpec, RunView, SkippedJob, Source

PULL_REQUEST = replace(SOURCE, event="pull_request", ref="refs/pull/7/head", pull_request=7)
FOR_MAIN = """\
on: {push: {branches: [main]}, pull_request: {}}
jobs: {test: {steps: [{run: exit 1}]}}
"""


@pytest.fixture
async def site(receiver: Receiver) -> AsyncIterator[Told]:
    """GitHub is told."""
    opened = Told(reporting(receiver, team=False))
    await opened.open()
    yield opened
    assert await opened.all_faults() == []
    await opened.close()


async def evaluated(site: Told, text: str, source: Source, *failing: str) -> RunView:
    """A run of a workflow file, to its end."""
    spec = RunSpec(workflow="ci", planner="workflow", definition=text, source=source)
    view = await site.runs.submit(spec)
    await site.recover()
    await site.finish(view.id, *failing)
    await site.recover()
    return await site.look(view.id)


async def test_a_push_with_nothing_to_do_leaves_a_failing_pull_request_red(
    site: Told, receiver: Receiver
) -> None:
    assert (await evaluated(site, FOR_MAIN, PULL_REQUEST, "test")).outcome == "FAILED"
    before = len(receiver.heard)
    feature = await evaluated(site, FOR_MAIN, replace(SOURCE, ref="refs/heads/feature"))
    assert (feature.outcome, feature.state, feature.jobs) == ("SUCCESS", "REPORTED", ())
    assert receiver.heard[before:] == [], "there is no status that says that nothing was done"
    assert statuses(receiver)[-1] == "failure"


async def test_a_superseded_run_that_ends_late_leaves_the_status_of_the_newer_run_of_its_commit(
    site: Told, receiver: Receiver
) -> None:
    old = await site.one_job(workflow="ci", concurrency_group="ci")
    (late,) = await site.claim()
    await site.heard(ack(late))
    new = await site.one_job(workflow="ci", concurrency_group="ci")
    assert (await site.look(old)).superseded_by == new
    await site.finish(new)
    await site.recover(2)
    assert statuses(receiver)[-1] == "success"
    await site.heard(stopped(late))
    await site.recover(3)
    assert [await site.state(each) for each in (old, new)] == ["REPORTED", "REPORTED"]
    assert (await site.look(old)).outcome == "CANCELED"
    assert statuses(receiver)[-1] == "success"
    assert (await site.report(old, "github")).state == "dropped"


async def test_a_run_that_ends_after_a_newer_one_of_its_commit_leaves_the_status_of_that(
    site: Told, receiver: Receiver
) -> None:
    old = await site.one_job(workflow="ci", concurrency_group="")
    (late,) = await site.claim()
    new = await site.one_job(workflow="ci", concurrency_group="")
    await site.finish(new)
    await site.recover(2)
    await site.heard(failed(late, "compile"))
    await site.recover(3)
    assert (await site.look(old)).outcome == "FAILED"
    assert statuses(receiver)[-1] == "success"


async def test_a_newer_run_of_another_commit_or_workflow_takes_no_status_away(
    site: Told, receiver: Receiver
) -> None:
    old = await site.one_job(workflow="ci", concurrency_group="ci")
    (late,) = await site.claim()
    await site.heard(ack(late))
    for more in ({"source": replace(SOURCE, sha="c" * 40)}, {"workflow": "docs"}, {"source": PULL_REQUEST}):
        new = await site.one_job(**{"workflow": "ci", "concurrency_group": "ci", **more})
        await site.finish(new)
    await site.heard(stopped(late))
    await site.recover(3)
    assert (await site.look(old)).outcome == "CANCELED"
    assert (await site.report(old, "github")).state == "done"


async def test_push_and_pull_request_of_one_commit_have_contexts_of_their_own(
    site: Told, receiver: Receiver
) -> None:
    for source in (SOURCE, PULL_REQUEST):
        await evaluated(site, FOR_MAIN, source)
    contexts = {request.said["context"] for request in receiver.heard}
    assert contexts == {"interlock/ci/push", "interlock/ci/pull_request"}


async def test_an_approved_fork_with_nothing_to_do_does_not_stay_pending(
    site: Told, receiver: Receiver
) -> None:
    text = FOR_MAIN.replace("pull_request: {}", "manual: {}")
    spec = RunSpec(
        workflow="ci", planner="workflow", definition=text, source=replace(PULL_REQUEST, from_fork=True)
    )
    view = await site.runs.submit(spec)
    await site.recover()
    await site.runs.approve(view.id)
    await site.recover(2)
    assert (await site.look(view.id)).state == "REPORTED"
    assert statuses(receiver) == ["pending", "success"]
    assert receiver.heard[-1].said["description"].startswith("Nothing to do: the workflow is for push and")


def job(name: str, state: str = "COMPLETED", workflow: str = "", **more: Any) -> RunJobView:
    """A job of a run."""
    if state == "FAILED":
        more = {"failure": FailureView(failure_class="user", error="assert\n1 == 2"), **more}
    return RunJobView(name=name, job_id="j_1", state=state, workflow=workflow, **more)


def several(**more: Any) -> RunView:
    """A run of three workflow files, of which one has nothing to do."""
    jobs = (
        job("lint / ruff", workflow="lint"),
        job("test / unit (3.12)", "FAILED", workflow="test"),
        job("test / slow", "CANCELED", workflow="test", reason="upstream"),
        job("test / flaky", "FAILED", workflow="test", required=False),
    )
    skipped = (SkippedJob(name="docs / build", why="nothing in docs/** has changed", workflow="docs"),)
    fields = {"state": "FAILED", "outcome": "FAILED", "jobs": jobs, "skipped": skipped, "completed_at": NOW}
    return run_view(**{**fields, **more})


def reporter(receiver: Receiver, **more: Any) -> GithubReporter:
    """A reporter with these settings."""
    return GithubReporter(GithubReporting(token=Secret(b"ghp_secret"), api=receiver.url, **more), now)


async def told(receiver: Receiver, run: RunView, word: RunStatus, **more: Any) -> dict[str, tuple[str, str]]:
    """By context, what GitHub was told of the run."""
    github = reporter(receiver, **more)
    await github.deliver(report(word, run), "")
    await github.close()
    bodies = [request.said for request in receiver.heard]
    return {each["context"]: (each["state"], each["description"]) for each in bodies}


async def test_each_workflow_file_has_a_status_beside_the_one_of_the_run(receiver: Receiver) -> None:
    assert await told(receiver, several(), RunStatus.FAILED) == {
        "interlock/ci/push/lint": ("success", "Succeeded: 1 job"),
        "interlock/ci/push/test": ("failure", "Failed: unit (3.12), flaky"),
        "interlock/ci/push": ("failure", "Failed: test / unit (3.12), test / flaky"),
    }
    assert receiver.heard[-1].said["context"] == "interlock/ci/push", "its parts are known before"


async def test_each_job_has_its_own_commit_status_if_statuses_is_set_to_job(receiver: Receiver) -> None:
    found = await told(receiver, several(), RunStatus.FAILED, statuses="job")
    assert list(found)[-1] == "interlock/ci/push"
    assert {name: state for name, (state, _) in found.items()} == {
        "interlock/ci/push": "failure",
        "interlock/ci/push/lint": "success",
        "interlock/ci/push/test": "failure",
        "interlock/ci/push/lint/ruff": "success",
        "interlock/ci/push/test/unit (3.12)": "failure",
        "interlock/ci/push/test/slow": "error",
        "interlock/ci/push/test/flaky": "failure",
    }
    assert found["interlock/ci/push/test/slow"][1] == "Canceled: upstream"


async def test_one_status_for_the_run_alone_and_a_context_without_the_event_as_before(
    receiver: Receiver,
) -> None:
    found = await told(receiver, several(), RunStatus.FAILED, statuses="run", context="interlock/{workflow}")
    assert list(found) == ["interlock/ci"]


async def test_while_a_run_continues_a_workflow_is_pending_until_it_is_known(receiver: Receiver) -> None:
    jobs = (
        job("a / x", "RUNNING", workflow="a"),
        job("b / y", workflow="b"),
        job("c / z", "FAILED", workflow="c"),
        job("c / w", "PENDING", workflow="c"),
    )
    run = several(state="RUNNING", outcome=None, jobs=jobs, skipped=(), completed_at=None)
    found = await told(receiver, run, RunStatus.RUNNING)
    assert {name: state for name, (state, _) in found.items()} == {
        "interlock/ci/push": "pending",
        "interlock/ci/push/a": "pending",
        "interlock/ci/push/b": "success",
        "interlock/ci/push/c": "failure",
    }


async def test_a_run_that_was_stopped_is_not_a_success_of_the_workflows_it_has_not_done(
    receiver: Receiver,
) -> None:
    jobs = (job("a / x", "CANCELED", workflow="a"), job("b / y", workflow="b"))
    run = several(state="TIMEOUT", outcome="TIMEOUT", jobs=jobs, reason="timeout")
    found = await told(receiver, run, RunStatus.TIMEOUT)
    assert found["interlock/ci/push/a"] == ("failure", "Timed out: 1 job")
    assert found["interlock/ci/push/b"][0] == "success"


async def test_a_status_has_one_line(receiver: Receiver) -> None:
    error = "ci.yml:1:1: there is no key 'x'\nci.yml:2:1: the job y has no steps\r\n"
    run = run_view(state="FAILED", outcome="FAILED", error=error, tally={})
    found = await told(receiver, run, RunStatus.FAILED)
    (described,) = (text for _, text in found.values())
    assert described == "Failed: ci.yml:1:1: there is no key 'x' ci.yml:2:1: the job y has no steps"


async def test_a_429_response_to_a_commit_status_delays_all_reports_by_its_retry_after_header(
    receiver: Receiver,
) -> None:
    receiver.answers = [Says(429, {}, {"Retry-After": "30"})]
    github = reporter(receiver)
    with pytest.raises(DeliveryFailed) as refused:
        await github.deliver(report(RunStatus.FAILED, several()), "")
    await github.close()
    assert (refused.value.after_s, refused.value.for_all) == (30.0, True)
    assert "interlock/ci/push" not in {request.said["context"] for request in receiver.heard}


async def test_a_check_of_nothing_is_skipped(receiver: Receiver) -> None:
    receiver.otherwise = lambda request: Says(
        200, {"check_runs": []} if request.method == "GET" else {"id": 7}
    )
    run = run_view(state="SUCCESS", outcome="SUCCESS", tally={}, skipped=several().skipped)
    github = reporter(receiver, check=True)
    assert github.wants(run, RunStatus.SUCCESS)
    await github.deliver(report(RunStatus.SUCCESS, run), "")
    await github.close()
    made = receiver.heard[-1].said
    assert (made["name"], made["conclusion"]) == ("interlock/ci/push", "skipped")
    assert made["output"]["title"] == "Nothing to do: nothing in docs/** has changed"


async def test_checks_of_workflows_are_made_once_and_then_changed(receiver: Receiver) -> None:
    numbers = iter(range(1, 100))
    receiver.otherwise = lambda request: Says(
        200, {"check_runs": []} if request.method == "GET" else {"id": next(numbers)}
    )
    github = reporter(receiver, check=True)
    running = several(state="RUNNING", outcome=None, completed_at=None)
    memory = await github.deliver(report(RunStatus.RUNNING, running), "")
    made = [request.said["name"] for request in receiver.heard if request.method == "POST"]
    assert made == [f"interlock/ci/push{part}" for part in ("/lint", "/test", "/docs", "")]
    receiver.heard.clear()
    await github.deliver(report(RunStatus.FAILED, several()), memory)
    await github.close()
    changed = {request.said["name"]: request.said["conclusion"] for request in receiver.heard}
    assert {request.method for request in receiver.heard} == {"PATCH"}
    assert list(changed.values()) == ["success", "failure", "skipped", "failure"]


async def test_a_check_that_an_earlier_version_has_made_is_changed(receiver: Receiver) -> None:
    receiver.otherwise = lambda _: Says(200, {"check_runs": [], "id": 8})
    github = reporter(receiver, check=True, statuses="run")
    assert await github.deliver(report(RunStatus.SUCCESS), "4711") == "4711"
    await github.close()
    assert [request.path[-5:] for request in receiver.heard] == ["/4711"]


def test_an_approval_keeps_the_status_of_an_empty_plan(receiver: Receiver) -> None:
    empty = run_view(state="SUCCESS", outcome="SUCCESS", tally={})
    github = reporter(receiver)
    assert not github.wants(empty, RunStatus.SUCCESS)
    assert github.wants(
        replace(empty, approvals=(Approval(by="ann", at=NOW, reason="fork"),)), RunStatus.SUCCESS
    ), "it was told that it waits, and must not stay so"
