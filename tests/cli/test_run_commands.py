"""`interlock run …`: what is asked for, shown, drawn, followed, stopped and done again."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tests.cli.shop import RunCli, Shop

from interlock.engine.outbox import MESSAGE, SENDING, WAITING
from interlock.store.records import Query
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.wire.runner import ClaimRequest, Complete, Failed, Succeeded
from interlock.wire.runs import RunView

WORKFLOW = """\
name: ci
inputs: {target: {default: staging, options: [staging, production]}}
jobs:
  lint: {steps: [{run: make lint}]}
  test:
    needs: lint
    matrix: {python: ["3.11", "3.12"]}
    steps: [{run: make test}]
  deploy: {needs: test, if: "inputs.target == 'production'", steps: [{run: make deploy}]}
"""
FLOWS = """
from interlock import Flow, flow

print("a module of flows that talks")

@flow
def release(plan: Flow, *, version: str) -> None:
    print("a flow that talks")
    built = plan.shell("build", f"make VERSION={version}")
    plan.shell("publish", "make publish", needs=[built])
"""


@pytest.fixture
def ci(shop: Shop, folder: Path) -> Shop:
    """A shop with a workflow file."""
    (folder / ".interlock").mkdir()
    (folder / ".interlock" / "ci.yml").write_text(WORKFLOW)
    (folder / "shop_flows.py").write_text(FLOWS)
    return shop


async def is_something_on_its_way(port: EmbeddedOrchestrator) -> bool:
    """Return whether a run is being planned or jobs are being made, perhaps by a process that has ended."""
    undelivered = Query(kind=MESSAGE.name, states=(WAITING, SENDING), limit=1)
    return bool((await port.services.store.find(undelivered)).records)


def work(shop: Shop, *failing: str) -> None:
    """Do every job there is, and those that follow, until nothing is left."""

    async def do(port: EmbeddedOrchestrator) -> None:
        while True:
            await port.recover()
            grants = await port.claim(ClaimRequest(runner_id="r", limit=100))
            if not grants and not await is_something_on_its_way(port):
                return
            for grant in grants:
                name = (await port.services.jobs.get(grant.job_id)).description
                failed = Failed(error="it does not compile", exit_code=2)
                outcome = failed if name in failing else Succeeded()
                await port.report([Complete(token=grant.token, runner_id="r", sequence=1, outcome=outcome)])

    shop.do(do)


def submitted(cli: RunCli, *words: str) -> str:
    answer = cli("run", "submit", *words)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def shown(cli: RunCli, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli("run", "show", run_id, "--json").stdout)
    return found


def test_run_submit_without_a_name_uses_the_only_workflow_file(cli: RunCli, ci: Shop) -> None:
    run_id = submitted(cli)
    view = shown(cli, run_id)
    assert (view["workflow"], view["state"]) == ("ci", "QUEUED")
    assert [job["name"] for job in view["jobs"]] == ["lint", "test (3.11)", "test (3.12)"]
    assert [job["name"] for job in view["skipped"]] == ["deploy"]


def test_inputs_are_given_by_name_and_a_dry_run_only_shows_the_plan(cli: RunCli, ci: Shop) -> None:
    answer = cli("run", "submit", "--input", "target=production", "--dry-run")
    rows = [line.split("\t") for line in answer.stdout.splitlines()]
    assert [row[1] for row in rows] == ["lint", "test (3.11)", "test (3.12)", "deploy"]
    assert rows[3][2] == "test (3.11), test (3.12)"
    assert cli("run", "list").stdout == ""


def test_a_file_with_faults_is_refused_with_line_and_column(cli: RunCli, ci: Shop, folder: Path) -> None:
    (folder / "bad.yml").write_text("jobs:\n  a: {stepz: []}\n  b: {needs: c, steps: [{run: x}]}\n")
    answer = cli("run", "submit", "--workflow", "bad.yml")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "bad.yml:2:7: there is no key of a job 'stepz'; did you mean steps?" in answer.stderr
    assert "bad.yml:3:14: there is no job 'c'" in answer.stderr
    assert "  allowed: needs, after, if, matrix, " in answer.stderr, "what could be there is no fault"
    assert "  faults:" not in answer.stderr
    assert cli("run", "list").stdout == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--input", "target=nowhere"], "target cannot be 'nowhere', only staging or production"),
        (["--input", "target"], "'target' is not NAME=VALUE"),
        (["--workflow", "nope.yml"], "nope.yml cannot be read"),
        (["--plan", "nope.json"], "nope.json cannot be read"),
        (["shop_flows:releas"], "There is no flow releas in shop_flows. Did you mean release?"),
        (["shop_flows:release"], "The flow release needs version"),
        (["shop_flows"], "is not a flow, which is written MODULE:FUNCTION"),
        (["shop_flows:release", "--plan", "x"], "Several sources given"),
    ],
)
def test_invalid_arguments_of_run_submit_are_refused_with_an_explanation(
    cli: RunCli, ci: Shop, words: list[str], message: str
) -> None:
    answer = cli("run", "submit", *words)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert message in answer.stderr


def test_a_flow_is_evaluated_here(cli: RunCli, ci: Shop) -> None:
    view = shown(cli, submitted(cli, "shop_flows:release", "--input", "version=1.2", "--label", "nightly"))
    assert (view["workflow"], view["labels"]) == ("release", ["nightly"])
    assert [(job["name"], job.get("needs")) for job in view["jobs"]] == [
        ("build", None),
        ("publish", ["build"]),
    ]


def test_a_plan_is_taken_as_it_is(cli: RunCli, ci: Shop, folder: Path) -> None:
    (folder / "plan.json").write_text('{"jobs": [{"name": "a", "task": "shop.a"}]}')
    run_id = submitted(cli, "--plan", "plan.json", "--name", "once", "--request-id", "x")
    assert submitted(cli, "--plan", "plan.json", "--name", "once", "--request-id", "x") == run_id
    (folder / "plan.json").write_text('{"jobs": [{"name": "a"}]}')
    assert "is not a plan" in cli("run", "submit", "--plan", "plan.json").stderr


def test_run_submit_evaluates_the_git_repository_of_the_current_directory(
    cli: RunCli, ci: Shop, folder: Path
) -> None:
    def git(*words: str) -> str:
        named = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        done = subprocess.run(["git", *named, *words], cwd=folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "--quiet", "--initial-branch=main")
    git("add", ".interlock")
    git("commit", "--quiet", "--message=first")
    base = git("rev-parse", "HEAD")
    (folder / "a.txt").write_text("x")
    git("add", "a.txt")
    git("commit", "--quiet", "--message=second")
    source = shown(cli, submitted(cli, "--base", base))["source"]
    assert (source["ref"], source["sha"], source["title"]) == (
        "refs/heads/main",
        git("rev-parse", "HEAD"),
        "second",
    )
    assert (source["base_sha"], source["changed_paths"]) == (base, ["a.txt"])
    (folder / "a.txt").write_text("y")
    assert "Uncommitted changes" in cli("run", "submit").stderr


def test_runs_can_be_listed_filtered_and_explained_and_have_a_history(cli: RunCli, ci: Shop) -> None:
    first, second = submitted(cli), submitted(cli, "--name", "other")
    listed = [line.split("\t") for line in cli("run", "list").stdout.splitlines()]
    assert [row[0] for row in listed] == [second, first]
    assert [row[0] for row in listed if row[3] == "ci"] == [first]
    assert cli("run", "list", "workflow:ci").stdout.startswith(first)
    explained = cli("run", "explain", first[:10] if first[:10] != second[:10] else first)
    assert explained.returncode == 0
    assert f"{first} is QUEUED" in explained.stdout
    work(ci)
    assert "required_jobs_succeeded" in cli("run", "history", first).stdout
    assert cli("run", "list", "outcome:success", "--json").stdout.count('"SUCCESS"') >= 2
    assert cli("run", "list", "outcome:failed").stderr == "No run matches.\n"


def test_a_run_is_drawn_in_every_way(cli: RunCli, ci: Shop) -> None:
    run_id = submitted(cli)
    heading, *lines = cli("run", "graph", run_id).stdout.splitlines()
    assert heading.startswith(f"ci  {run_id}  QUEUED")
    assert lines[:2] == ["○ lint ─┬─ ◌ test (3.11)", "        └─ ◌ test (3.12)"]
    assert lines[2].startswith("↷ deploy: the condition does not hold")
    picture = ET.fromstring(cli("run", "graph", run_id, "--format", "svg").stdout)
    assert len([element for element in picture.iter() if element.get("class") == "line"]) == 2
    assert cli("run", "graph", run_id, "--format", "mermaid").stdout.startswith("flowchart LR")
    assert cli("run", "graph", run_id, "--format", "dot").stdout.startswith("digraph run {")
    nodes = json.loads(cli("run", "graph", run_id, "--json").stdout)["nodes"]
    assert nodes[1]["needs"] == ["lint"]


@pytest.mark.parametrize(("failing", "code"), [((), 0), (("test (3.12)",), 3)])
def test_watching_a_run_prints_its_changes_and_exits_with_the_code_of_its_outcome(
    cli: RunCli, ci: Shop, failing: tuple[str, ...], code: int
) -> None:
    run_id = submitted(cli)
    work(ci, *failing)
    answer = cli("run", "watch", run_id)
    assert answer.returncode == code
    rows = {line.split("\t")[1]: line.split("\t") for line in answer.stdout.splitlines()}
    assert rows["lint"][3] == "COMPLETED"
    assert rows["test (3.12)"][3] == ("FAILED" if failing else "COMPLETED")
    assert rows[run_id][3] == "REPORTED"
    updates = [json.loads(line) for line in cli("run", "watch", run_id, "--json").stdout.splitlines()]
    assert updates[-1]["run"]["outcome"] == ("FAILED" if failing else "SUCCESS")
    if failing:
        assert "it does not compile" in rows["test (3.12)"][4]
        assert cli("run", "show", run_id).stdout.count("it does not compile") == 1


def test_run_watch_exits_with_code_5_after_its_timeout(cli: RunCli, ci: Shop) -> None:
    run_id = submitted(cli)
    answer = cli("run", "watch", run_id, "--timeout", "0.2s")
    assert answer.returncode == 5
    assert f"Not ended in time: {run_id}" in answer.stderr


def test_runs_are_stopped_and_done_again(cli: RunCli, ci: Shop) -> None:
    ids = [submitted(cli), submitted(cli)]
    assert cli("run", "cancel", "workflow:ci").returncode == 2, "nobody can be asked"
    assert len(cli("run", "cancel", "workflow:ci", "--dry-run").stdout.splitlines()) == 2
    stopped = cli("run", "cancel", "workflow:ci", "--yes", "--reason", "enough")
    assert stopped.returncode == 0
    assert {line.split("\t")[0] for line in stopped.stdout.splitlines()} == set(ids)
    work(ci)
    assert cli("run", "watch", ids[0]).returncode == 4
    again = cli("run", "rerun", ids[0], "--failed")
    assert again.returncode == 0, again.stderr
    assert shown(cli, again.stdout.strip())["origin_run_id"] == ids[0]
    assert cli("run", "rerun", ids[0], "--from", "nope").returncode == 2
    assert cli("run", "rerun", ids[0], "--from", "lint", "--failed").returncode == 2
    assert cli("run", "cancel", ids[0]).returncode == 2, "it has ended"


def test_logs_of_a_run_print_each_line_of_a_text_on_its_own(cli: RunCli, ci: Shop) -> None:
    run_id = submitted(cli)
    first = shown(cli, run_id)["jobs"][0]
    ci.take(first["job_id"])
    ci.write(first["job_id"], "Traceback:\n  ValueError")
    assert cli("run", "logs", run_id, "--plain").stdout == "Traceback:\n  ValueError\n"
    rows = [line.split("\t")[1:] for line in cli("run", "logs", run_id).stdout.splitlines()]
    name = first["name"]
    assert rows == [[name, "1.1", "info", "Traceback:"], [name, "1.1", "info", "  ValueError"]]
    (entry,) = map(json.loads, cli("run", "logs", run_id, "--json").stdout.splitlines())
    assert (entry["text"], entry["job"], entry["job_id"]) == (
        "Traceback:\n  ValueError",
        name,
        first["job_id"],
    )


def test_logs_are_those_of_all_jobs_or_of_one(cli: RunCli, ci: Shop) -> None:
    run_id = submitted(cli)
    work(ci)
    assert cli("run", "logs", run_id).returncode == 0
    answer = cli("run", "logs", run_id, "tests")
    assert answer.returncode == 2
    assert f"The run {run_id} has no job 'tests'." in answer.stderr


@pytest.mark.parametrize(
    "words", [["show"], ["explain"], ["graph"], ["watch"], ["logs"], ["cancel"], ["rerun"]]
)
def test_a_run_that_is_not_there_is_reported_as_such(cli: RunCli, shop: Shop, words: list[str]) -> None:
    answer = cli("run", *words, "r_000000000000")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "There is no run r_000000000000" in answer.stderr
    assert "is not the id of a run" in cli("run", *words, "nonsense").stderr


def test_run_list_and_run_submit_print_views_as_json(cli: RunCli, ci: Shop) -> None:
    import msgspec

    listed = json.loads(cli("run", "list", "--json").stdout)
    assert listed["runs"] == []
    made = msgspec.json.decode(cli("run", "submit", "--json").stdout, type=RunView)
    assert made.id.startswith("r_")
