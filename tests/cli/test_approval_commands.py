"""`interlock job signal` and `interlock approval list|show|approve|reject`."""

from __future__ import annotations

import json

from tests.cli.shop import RUNNER, RunCli, Shop

from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.wire.runner import Release
from interlock.wire.runs import Plan, PlannedApproval, PlannedJob, RunSpec
from interlock.wire.waits import ApprovalQuestion, WaitRequest


def waiting(shop: Shop, question: ApprovalQuestion | None = None, name: str = "") -> str:
    """A job whose handler waits."""
    job_id = shop.submit()
    shop.take(job_id)
    wait = WaitRequest(token=shop.grants[job_id].token, runner_id=RUNNER, name=name, question=question)
    answer = shop.do(lambda port: port.await_signal(wait))
    shop.say(job_id, Release, await_signal=answer.id)
    return job_id


def test_a_signal_is_sent_to_the_job_that_waits_for_it(cli: RunCli, shop: Shop) -> None:
    job = waiting(shop, name="paid")
    explained = cli("job", "explain", job).stdout
    assert f"→ interlock job signal {job} paid" in explained
    sent = cli("job", "signal", job, "paid", "--data", '{"sum": 3}', "--request-id", "r")
    assert (sent.returncode, sent.stdout) == (0, f"{job}\tpaid\tRECEIVED\n")
    again = json.loads(cli("job", "signal", job, "paid", "--json").stdout)
    assert (again["number"], again["state"]) == (2, "KEPT")
    for wrong, why in (
        (("signal", job, "paid", "--data", "{"), "The data of the signal"),
        (("signal", job, "a b"), "cannot be called"),
        (("signal", shop.completed(), "paid"), "is COMPLETED, so it receives nothing"),
    ):
        answer = cli("job", *wrong)
        assert answer.returncode == 2
        assert why in answer.stderr


def test_a_job_of_a_run_that_waits_for_a_person_is_drawn_and_explained(cli: RunCli, shop: Shop) -> None:
    plan = Plan(jobs=(PlannedJob(name="deploy", task="t", approval=PlannedApproval(question="Deploy?")),))

    async def submit(port: EmbeddedOrchestrator) -> str:
        run_id = (await port.services.runs.submit(RunSpec(plan=plan))).id
        for _ in range(3):
            await port.services.runs.keep()
        return run_id

    run_id = shop.do(submit)
    assert "○ deploy waits for a person" in cli("run", "graph", run_id).stdout
    explained = cli("run", "explain", run_id).stdout
    assert "It waits for a person to approve or reject: 'Deploy?'." in explained
    assert "→ interlock approval approve j_" in explained
    (listed,) = json.loads(cli("approval", "list", "--json").stdout)["approvals"]
    assert listed["run_id"] == run_id
    assert cli("approval", "approve", listed["job_id"]).returncode == 0
    assert "waits for a person" not in cli("run", "graph", run_id).stdout


def test_approvals_are_listed_until_a_person_has_answered(cli: RunCli, shop: Shop) -> None:
    assert "No job waits for an approval." in cli("approval", "list").stderr
    first, second = (waiting(shop, ApprovalQuestion(text=f"Deploy {n}?")) for n in (1, 2))
    shown = cli("approval", "list").stdout.splitlines()
    assert [line.split("\t")[:3] for line in shown] == [
        [f"{second}.approval.1", "WAITING", "Deploy 2?"],
        [f"{first}.approval.1", "WAITING", "Deploy 1?"],
    ]
    done = cli("approval", "approve", first, "--comment", "fine")
    assert (done.returncode, done.stdout) == (0, f"{first}.approval.1\tAPPROVED\n")
    left = json.loads(cli("approval", "reject", f"{second}.approval.1", "--json").stdout)
    assert left["state"] == "REJECTED"
    about = cli("approval", "show", f"{first}.approval.1").stdout
    assert "Deploy 1?" in about
    assert "fine" in about
    listed = json.loads(cli("approval", "list", "--all", "--json").stdout)
    assert [one["state"] for one in listed["approvals"]] == ["REJECTED", "APPROVED"]
    again = cli("approval", "approve", f"{second}.approval.1")
    assert (again.returncode, "is REJECTED" in again.stderr) == (2, True)
