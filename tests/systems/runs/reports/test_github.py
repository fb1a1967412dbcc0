"""GitHub is told in the way that it documents, and its answers are understood."""

from __future__ import annotations

import msgspec
import pytest
from tests.systems.runs.reports.receiver import Receiver, Says
from tests.systems.runs.reports.reports import NOW, SHA, failed_run, now, report, run_view
from tests.waiting import PATIENCE_S

from interlock.systems.runs.reports.github import GithubReporter, refusal_of
from interlock.systems.runs.reports.outbound_http import HttpAnswer
from interlock.systems.runs.reports.report import DeliveryFailed, RunStatus
from interlock.systems.runs.settings import GithubReporting
from interlock.systems.runs.webhook_security import Secret
from interlock.wire.runs import Source

TOKEN = Secret(b"ghp_secret")


def reporter(receiver: Receiver, *, check: bool = False, timeout_s: float = PATIENCE_S) -> GithubReporter:
    return GithubReporter(
        GithubReporting(token=TOKEN, api=receiver.url, check=check), now, timeout_s=timeout_s
    )


@pytest.mark.parametrize(
    ("word", "state"),
    [
        (RunStatus.AWAITING_APPROVAL, "pending"),
        (RunStatus.PENDING, "pending"),
        (RunStatus.RUNNING, "pending"),
        (RunStatus.SUCCESS, "success"),
        (RunStatus.FAILED, "failure"),
        (RunStatus.CANCELED, "error"),
        (RunStatus.TIMEOUT, "failure"),
    ],
)
async def test_every_run_status_is_sent_to_github_as_a_commit_status(
    receiver: Receiver, word: RunStatus, state: str
) -> None:
    github = reporter(receiver)
    await github.deliver(report(word), "")
    await github.close()
    (request,) = receiver.heard
    assert (request.method, request.path) == ("POST", f"/repos/acme/shop/statuses/{SHA}")
    assert request.headers["authorization"] == "Bearer ghp_secret"
    assert request.headers["accept"] == "application/vnd.github+json"
    assert request.headers["x-github-api-version"] == "2022-11-28"
    assert request.said["state"] == state
    assert request.said["context"] == "interlock/ci/push"
    assert request.said["target_url"] == "https://ci.example.org/runs/r_0123456789ab"


async def test_a_failure_names_its_jobs_within_githubs_limit(receiver: Receiver) -> None:
    github = reporter(receiver)
    for number in (1, 50):
        await github.deliver(report(RunStatus.FAILED, failed_run(number)), "")
    await github.deliver(report(RunStatus.FAILED, run_view(outcome="FAILED", error="x" * 500)), "")
    await github.close()
    descriptions = [request.said["description"] for request in receiver.heard]
    assert descriptions[0] == "Failed: test (0)"
    assert descriptions[1] == "Failed: test (0), test (1), test (2) and 47 more"
    assert len(descriptions[2]) == 140


async def test_a_check_is_made_once_and_then_changed(receiver: Receiver) -> None:
    receiver.otherwise = lambda request: Says(
        200, {"check_runs": []} if request.method == "GET" else {"id": 4711}
    )
    github = reporter(receiver, check=True)
    memory = await github.deliver(report(RunStatus.PENDING), "")
    memory = await github.deliver(report(RunStatus.RUNNING), memory)
    await github.deliver(report(RunStatus.FAILED, failed_run(30)), memory)
    await github.close()
    looked, made, running, done = receiver.heard
    assert looked.path == f"/repos/acme/shop/commits/{SHA}/check-runs?check_name=interlock%2Fci%2Fpush"
    assert (made.method, made.path) == ("POST", "/repos/acme/shop/check-runs")
    assert (made.said["head_sha"], made.said["status"]) == (SHA, "queued")
    assert made.said["external_id"] == "r_0123456789ab"
    assert (running.method, running.path) == ("PATCH", "/repos/acme/shop/check-runs/4711")
    assert running.said["status"] == "in_progress"
    assert (done.said["status"], done.said["conclusion"]) == ("completed", "failure")
    assert done.said["completed_at"] == "2026-01-31T12:00:00Z"
    assert "and 10 more" in done.said["output"]["summary"]


async def test_a_check_run_whose_id_was_lost_is_found_by_the_id_of_the_run_and_updated(
    receiver: Receiver,
) -> None:
    others = [{"id": 1, "external_id": "r_other"}, {"id": 7, "external_id": "r_0123456789ab"}, "odd"]
    receiver.otherwise = lambda _: Says(200, {"check_runs": others})
    github = reporter(receiver, check=True)
    assert await github.deliver(report(RunStatus.SUCCESS), "") == "7"
    await github.close()
    assert [(request.method, request.path[-2:]) for request in receiver.heard] == [
        ("GET", "sh"),
        ("PATCH", "/7"),
    ]


async def test_nobodys_output_breaks_out_of_a_summary(receiver: Receiver) -> None:
    run = failed_run()
    assert run.jobs[0].failure is not None
    receiver.otherwise = lambda _: Says(200, {"check_runs": [], "id": 1})
    github = reporter(receiver, check=True)
    wild = msgspec.structs.replace(run.jobs[0].failure, error="<img src=x> [a](b)\n# @everyone `")
    jobs = (msgspec.structs.replace(run.jobs[0], failure=wild),)
    await github.deliver(report(RunStatus.FAILED, msgspec.structs.replace(run, jobs=jobs)), "")
    await github.close()
    summary = receiver.heard[-1].said["output"]["summary"]
    assert summary.splitlines()[1] == r"- test \(0\): \<img src=x\> \[a\]\(b\) \# \@everyone \`"


@pytest.mark.parametrize(
    ("says", "after_s", "never"),
    [
        (Says(401, {"message": "Bad credentials"}), None, False),
        (Says(403, {"message": "Resource not accessible by personal access token"}), None, False),
        (Says(403, {"message": "x"}, {"Retry-After": "30"}), 30.0, False),
        (Says(403, {"message": "You have exceeded a secondary rate limit."}), 60.0, False),
        (Says(429, {}), 60.0, False),
        (Says(404, {"message": "Not Found"}), None, False),
        (Says(422, {"message": "No commit found for SHA"}), None, True),
        (Says(500, {}), None, False),
        (Says(raw=b"HTTP/1.1 502 X\r\nContent-Length: 4\r\n\r\n<htm"), None, False),
        (Says(301, {}, {"Location": "https://elsewhere.example"}), None, False),
        (Says(cut=True), None, False),
        (Says(raw=b"not http at all\r\n\r\n"), None, False),
    ],
)
async def test_every_way_in_which_github_fails_is_understood(
    receiver: Receiver, says: Says, after_s: float | None, never: bool
) -> None:
    receiver.answers = [says]
    github = reporter(receiver)
    with pytest.raises(DeliveryFailed) as failure:
        await github.deliver(report(), "")
    await github.close()
    assert (failure.value.after_s, failure.value.never) == (after_s, never)
    assert failure.value.for_all is (after_s is not None)
    assert "ghp_secret" not in str(failure.value)
    assert len(receiver.heard) == 1


async def test_a_github_that_does_not_answer_is_not_waited_for_for_long(receiver: Receiver) -> None:
    receiver.answers = [Says(silent=True)]
    github = reporter(receiver, timeout_s=0.05)
    with pytest.raises(DeliveryFailed, match="no answer within"):
        await github.deliver(report(), "")
    await github.close()


def test_the_primary_rate_limit_of_github_pauses_all_reports_until_its_reset_time() -> None:
    reset = str(int(NOW.timestamp()) + 90)
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset}
    refusal = refusal_of(HttpAnswer(403, headers, b'{"message": "API rate limit exceeded"}'), NOW)
    assert (refusal.after_s, refusal.for_all) == (90.0, True)


def test_only_runs_about_a_commit_of_a_repository_are_its_business(receiver: Receiver) -> None:
    github = reporter(receiver)
    assert github.wants(run_view(), RunStatus.PENDING)
    for source in (
        Source(),
        Source(repository="acme/shop"),
        Source(repository="acme/shop", sha="main"),
        Source(repository="/srv/git/shop", sha=SHA),
        Source(repository="acme/shop/../../user", sha=SHA),
    ):
        assert not github.wants(run_view(source=source), RunStatus.SUCCESS)
    assert not GithubReporter(GithubReporting(repository="other/*", token=TOKEN), now).wants(
        run_view(), RunStatus.SUCCESS
    )
    assert not GithubReporter(GithubReporting(), now).able
