"""`interlock run artifacts|flaky|report` and `interlock worker quarantined|lift`: what became of work."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

from tests.cli.shop import RunCli, Shop
from tests.waiting import PATIENCE_S

from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.quarantine import LostWork
from interlock.wire.runner import ClaimRequest, Complete, Failed, Succeeded
from interlock.wire.runs import Plan, PlannedJob, RunSpec, Source

SHA = "a" * 40


async def pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content


def run_of(shop: Shop, *, fails: bool) -> str:
    """A run of one job, which leaves a report behind."""

    async def do(port: EmbeddedOrchestrator) -> str:
        plan = Plan(jobs=(PlannedJob(name="test (1)", task="shop_tasks.add", retries=0),))
        source = Source(repository="shop/web", sha=SHA, ref="refs/heads/main")
        view = await port.services.runs.submit(RunSpec(workflow="ci", plan=plan, source=source))
        async with asyncio.timeout(PATIENCE_S):  # it is planned beside whoever recovers
            while not (grants := await port.claim(ClaimRequest(runner_id="r", limit=1))):
                await port.recover()
        (grant,) = grants
        await port.keep_artifact(grant.token, "r", "report.txt", pieces(b"all well"))
        outcome = Failed(error="it is red", exit_code=1) if fails else Succeeded()
        await port.report([Complete(token=grant.token, runner_id="r", outcome=outcome)])
        for _ in range(5):
            await port.recover()
        return view.id

    return shop.do(do)


def test_run_artifacts_lists_and_downloads_the_artifacts_of_the_jobs_of_a_run(
    shop: Shop, cli: RunCli
) -> None:
    run_id = run_of(shop, fails=False)
    job, name, attempt, size, _, job_id = cli("run", "artifacts", run_id).stdout.rstrip("\n").split("\t")
    assert (job, name, attempt, size) == ("test (1)", "report.txt", "1.1", "8")
    (left,) = json.loads(cli("run", "artifacts", run_id, "--json").stdout)
    assert (left["job"], left["artifact"]["job_id"]) == ("test (1)", job_id)
    fetched = cli("run", "artifacts", run_id, "test (1)", "--get", "report.txt", "--to", ".")
    assert fetched.stdout == "report.txt\n"
    assert (shop.folder / Path("report.txt")).read_bytes() == b"all well"
    assert "name the job" in cli("run", "artifacts", run_id, "--get", "report.txt").stderr
    assert "has no job 'test'" in cli("run", "artifacts", run_id, "test").stderr


def test_flaky_jobs_and_reports_are_shown(shop: Shop, cli: RunCli) -> None:
    none = cli("run", "flaky")
    assert (none.returncode, none.stdout) == (0, "")
    assert "No job has passed and failed" in none.stderr
    run_of(shop, fails=True)
    run_id = run_of(shop, fails=False)
    (flaky,) = json.loads(cli("run", "flaky", "--repository", "shop/web", "--json").stdout)
    assert (flaky["job"], flaky["contradicted"], flaky["latest_sha"]) == ("test (1)", 1, SHA)
    assert "shop/web\tci\ttest (1)\t1 of 1 commits" in cli("run", "flaky").stdout
    for more in ((), ("--again",)):
        result = cli("run", "report", run_id, *more)
        assert (result.returncode, result.stdout) == (0, "")
        assert "No reporter is notified" in result.stderr


def test_run_compare_compares_a_run_with_the_last_green_run_or_with_a_given_run(
    shop: Shop, cli: RunCli
) -> None:
    first = run_of(shop, fails=True)
    alone = cli("run", "compare", first)
    assert (alone.returncode, alone.stdout) == (0, "")
    assert "None of the 0 earlier runs that were searched is green" in alone.stderr
    green = run_of(shop, fails=False)
    red = run_of(shop, fails=True)
    comparison = cli("run", "compare", red)
    assert (comparison.returncode, comparison.stdout.split("\t")[:2]) == (0, ["test (1)", "failed"]), (
        comparison.stderr
    )
    assert f"Compared with {green}, the last green run" in comparison.stderr
    answer = json.loads(cli("run", "compare", red, "--json").stdout)
    assert (answer["green"]["id"], answer["changes"][0]["change"]) == (green, "failed")
    beside = json.loads(cli("run", "compare", red, "--with", green[:-1], "--json").stdout)
    assert (beside["other"]["id"], beside["changes"]) == (green, answer["changes"])
    alike = cli("run", "compare", red, "--with", first)
    assert (alike.returncode, alike.stdout) == (0, "")
    assert f"Compared with {first}: no job has failed, become slower, been added or removed." in alike.stderr
    missing = cli("run", "compare", red, "--with", "r_000000000000")
    assert (missing.returncode, "There is no run r_000000000000" in missing.stderr) == (2, True)


def test_rerun_preview_prints_the_jobs_to_execute_and_creates_no_run(shop: Shop, cli: RunCli) -> None:
    red = run_of(shop, fails=True)
    result = cli("run", "rerun", red, "--failed", "--preview")
    assert (result.returncode, result.stdout) == (0, "test (1)\tagain\n"), result.stderr
    answer = json.loads(cli("run", "rerun", red, "--from", "test (1)", "--preview", "--json").stdout)
    assert (answer["run_id"], answer["again"], answer.get("kept", [])) == (red, ["test (1)"], [])
    wrong = cli("run", "rerun", red, "--from", "nope", "--preview")
    assert (wrong.returncode, "nope" in wrong.stderr) == (2, True)
    assert len(json.loads(cli("run", "list", "--json").stdout)["runs"]) == 1
    several = cli("run", "rerun", "outcome:failed", "--preview")
    assert (several.returncode, "one run" in several.stderr) == (2, True)


def test_a_quarantined_worker_is_shown_and_lifted(shop: Shop, cli: RunCli) -> None:
    async def quarantine(port: EmbeddedOrchestrator) -> None:
        for number in range(3):
            await port.services.quarantine.count(
                [LostWork(runner="build-7", job_id=f"j_{number}", attempt="1.1")]
            )

    shop.do(quarantine)
    runner, state, occasions, _, lost = cli("worker", "quarantined").stdout.rstrip("\n").split("\t")
    assert (runner, state, occasions, lost) == ("build-7", "watched", "1", "j_0, j_1, j_2")
    assert cli("worker", "lift", "build-7", "--reason", "mended").stdout == "build-7 receives work again.\n"
    again = cli("worker", "lift", "build-7")
    assert (again.returncode, "is not quarantined" in again.stderr) == (2, True)
    assert json.loads(cli("worker", "quarantined", "--json").stdout) == []
