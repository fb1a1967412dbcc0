"""`interlock workload`: real agents, a real terminal's Ctrl-C, and a controller that is killed."""

from __future__ import annotations

import asyncio
import io
import json
import re
import signal
from collections.abc import Iterator

import pytest
from rich.console import Console
from tests.cli.shop import RunCli, Shop
from tests.programs import Program
from tests.systems.fleet.fleets import fleet, gated, moves, states
from tests.waiting import PATIENCE_S, PROGRAM_S, until_so

from interlock.cli.live import LiveWorkload, sparkline
from interlock.systems.fleet.outcome import AgentProgress, WorkloadProgress, line_of, read_line
from interlock.testing import skewed_clock
from interlock.testing.agent_process import AgentProcess
from interlock.wire.workloads import Latencies

LOAD = """\
duration: 10m
kind: sleep
with: {operation_s: 0.002}
rate: 100
lead: 500ms
skew-limit: 60s
ready-within: 60s
lost-after: 60s
"""


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[AgentProcess]]:
    with fleet(tmp_path_factory.mktemp("fleet"), [{}, {}]) as agents:
        yield agents


def load(shop: Shop, agents: list[AgentProcess], **more: str) -> str:
    usual = dict(line.split(": ", 1) for line in LOAD.splitlines())
    lines = "".join(f"{name}: {value}\n" for name, value in {**usual, **more}.items())
    named = ", ".join(f'"{agent.address}"' for agent in agents)
    (shop.folder / "load.yml").write_text(f"{lines}agents: [{named}]\n")
    return "load.yml"


def until_busy(running: Program) -> None:
    """Until a second was told in which something was done."""
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith("second") and line.split("\t")[2] != "0":
            return
    raise AssertionError(running.stderr.read() if running.stderr else "it ended")


def test_a_workload_is_run_shown_listed_and_saved(
    cli: RunCli, shop: Shop, agents: list[AgentProcess]
) -> None:
    done = cli("workload", "run", load(shop, agents, operations="100"), "--out", "results", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["result"]["verdict"], answer["result"]["operations"]) == ("COMPLETE", 200)
    saved = {path.name for path in (shop.folder / "results").iterdir()}
    assert saved == {"result.json", "seconds.csv", "latencies.hlog", "report.html"}
    assert json.loads((shop.folder / "results" / "result.json").read_text()) == answer["result"]
    listed = cli("workload", "list").stdout.split("\t")
    assert listed[:4] == [answer["job_id"], "COMPLETED", "load", "2"]
    shown = cli("workload", "show", answer["job_id"])
    assert "All agents completed." in shown.stdout
    assert shown.stdout.count("COMPLETED\t100") == 2
    watched = cli("workload", "watch", answer["job_id"], "--json")
    assert watched.returncode == 0
    assert {each["final"] for each in json.loads(watched.stdout)["agents"]} == {"COMPLETED"}


def test_ctrl_c_aborts_the_workload_leaves_every_agent_idle_and_saves_the_partial_result(
    cli: RunCli, shop: Shop, agents: list[AgentProcess]
) -> None:
    running = shop.start("workload", "run", load(shop, agents), "--out", "results")
    until_busy(running)
    running.send_signal(signal.SIGINT)
    output, stderr = running.communicate(timeout=PROGRAM_S)
    assert running.returncode == 130, stderr
    assert "ABORTED" in output
    assert asyncio.run(states(agents)) == ["IDLE", "IDLE"]
    saved = json.loads((shop.folder / "results" / "result.json").read_text())
    assert (saved["verdict"], saved["operations"] > 0) == ("ABORTED", True)
    job_id = cli("workload", "list").stdout.split("\t")[0]
    shown = json.loads(cli("workload", "show", job_id, "--json").stdout)
    assert (shown["job"]["state"], shown["result"]["verdict"]) == ("CANCELED", "ABORTED")
    assert {(each["state"], each["final"]) for each in shown["agents"]} == {("IDLE", "ABORTED")}


@pytest.mark.long  # Ctrl-C aborts one in a quick run
def test_a_workload_can_be_aborted_by_another_process(
    cli: RunCli, shop: Shop, agents: list[AgentProcess]
) -> None:
    running = shop.start("workload", "run", load(shop, agents))
    until_busy(running)
    job_id = cli("workload", "list").stdout.split("\t")[0]
    assert cli("workload", "abort", job_id, "--reason", "wrong target").returncode == 0
    running.communicate(timeout=PROGRAM_S)
    assert running.returncode == 4
    assert shop.job(job_id).stop_reason is not None
    assert asyncio.run(states(agents)) == ["IDLE", "IDLE"]


@pytest.mark.long  # as in test_killed_controller.py, which asks what becomes of the record as well
def test_agents_whose_controller_is_killed_stop_by_themselves(shop: Shop, agents: list[AgentProcess]) -> None:
    running = shop.start("workload", "run", load(shop, agents))
    until_busy(running)
    running.kill()
    running.communicate(timeout=PROGRAM_S)
    assert asyncio.run(states(agents, PATIENCE_S)) == ["IDLE", "IDLE"]


def test_a_workload_whose_controller_was_killed_is_shown_as_having_no_controller(
    cli: RunCli, shop: Shop, agents: list[AgentProcess]
) -> None:
    """Without a server nothing sweeps the store, and it was RUNNING with both agents half an hour later."""
    running = shop.start("workload", "run", load(shop, agents))
    until_busy(running)
    alive = cli("workload", "list")
    assert "agents running" in alive.stdout
    assert "no controller drives it" not in alive.stdout
    running.kill()
    running.communicate(timeout=PROGRAM_S)
    shop.later(1_800)
    listed = cli("workload", "list")
    assert re.search(r"no controller drives it: its lease expired 2\d min ago", listed.stdout)
    assert "agents running" not in listed.stdout
    job_id = listed.stdout.split("\t")[0]
    shown = cli("workload", "show", job_id)
    assert "no controller drives it" in shown.stdout
    assert shown.stdout.count("no report since ") == 2
    assert json.loads(cli("workload", "show", job_id, "--json").stdout)["driven"] is False
    assert cli("workload", "watch", job_id).returncode == 3, "whoever looks ends it"


@pytest.mark.long  # libfaketime makes it slow; test_clocks_and_start.py has the rule
@pytest.mark.parametrize("step_s", [30, -30])
def test_a_clock_step_on_the_controller_does_not_change_the_start_time_of_its_ready_agents(
    shop: Shop, agents: list[AgentProcess], step_s: int
) -> None:
    clock, gate = shop.folder / "clock", shop.folder / "gate"
    target = json.dumps(gated(agents, gate).spec)
    # They are READY until five seconds before the start; then they prepare.
    words = load(shop, agents, kind="python", operations="100", lead="7s", **{"with": target})
    before = [len(moves(agent)) for agent in agents]
    running = shop.start("workload", "run", words, "--json", env=skewed_clock.settable(clock))
    until_so(
        lambda: all(moves(agent)[number:] for agent, number in zip(agents, before, strict=True)),
        "both are READY",
    )
    skewed_clock.set_clock(clock, step_s)
    gate.touch()
    stdout, stderr = running.communicate(timeout=PROGRAM_S)
    assert running.returncode == 0, stderr
    answer = json.loads(stdout)
    result = answer["result"]
    assert (result["verdict"], result["operations"]) == ("COMPLETE", 200)
    for each in result["agents"]:
        # What is left when a busy machine has been allowed for: nobody began at once, or half a minute late.
        assert abs(each["began_ms"] - each.get("late_ms", 0.0)) <= result["start_bound_ms"]
    (attempt,) = shop.job(answer["job_id"]).attempts
    assert attempt.ended_at is not None
    assert attempt.started_at is not None
    lasted_s = (attempt.ended_at - attempt.started_at).total_seconds()
    assert step_s < 0 or lasted_s > step_s, "its clock was set while it ran"


def test_a_file_with_faults_is_reported_with_lines_and_columns(cli: RunCli, shop: Shop) -> None:
    (shop.folder / "load.yml").write_text("kind: sleep\nrate: fast\n")
    refused = cli("workload", "run", "load.yml", "--agents", "a.example")
    assert refused.returncode == 2
    assert "load.yml:2:7: this has to be a number" in refused.stderr
    missing = cli("workload", "run", "nothing.yml")
    assert (missing.returncode, "nothing.yml cannot be read" in missing.stderr) == (2, True)


def test_agents_that_are_not_there_are_named(cli: RunCli, shop: Shop) -> None:
    (shop.folder / "load.yml").write_text(LOAD)
    refused = cli("workload", "run", "load.yml", "--agents", "127.0.0.1:1")
    assert refused.returncode == 2
    assert "Nothing was started" in refused.stderr
    assert "127.0.0.1:1 does not answer" in refused.stderr


def test_the_workload_screen_shows_lost_and_corrupt_agents_and_counts_the_rest() -> None:
    members = tuple(
        AgentProgress(agent=f"a{n}", state="running", rate=100.0 + n, operations=n, corrupt=n == 39)
        for n in range(40)
    )
    lost = AgentProgress(agent="gone", state="lost")
    live = WorkloadProgress(
        elapsed_s=3.0,
        duration_s=10.0,
        running=40,
        agents=41,
        operations=9,
        rate=5.0,
        members=(*members, lost),
    )

    console = Console(width=120, record=True, file=io.StringIO())
    console.print(LiveWorkload("load on 41 agents", console).drawn(live))
    text = console.export_text()
    for words in ("gone", "LOST", "a39", "impossible numbers", "and 25 more", "3 s of 10 s"):
        assert words in text
    assert sparkline([0, 1, 2, 4, 8]) == "▁▂▃▅█"
    assert sparkline([]) == sparkline([0, 0]) == ""


def test_a_second_that_was_logged_can_be_read_again() -> None:
    live = WorkloadProgress(
        elapsed_s=1.0, duration_s=2.0, running=1, agents=1, latencies=Latencies(count=3, p99_ms=1.5)
    )
    assert read_line(line_of(live)) == live
