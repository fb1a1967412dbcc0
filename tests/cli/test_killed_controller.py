"""A controller that is killed as a whole process, at every moment.

Whenever it happens: its agents are idle by themselves, nothing of the workload lives on, and once its
lease has run out the store says what has become of it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from tests.agent.conftest import PATIENT, gone, python
from tests.cli.shop import RunCli, Shop
from tests.effort import pick
from tests.programs import Program
from tests.systems.fleet.fleets import OPTIONS, asked, moves, states, until_all_are
from tests.waiting import PATIENCE_S, until_so

from interlock.engine.audit import audit
from interlock.store.records import Query
from interlock.store.sqlite import SqliteStore
from interlock.systems.catalogue import JOURNALLED
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.fleet.spec import (
    TASK,
)
from interlock.systems.fleet.workloads import CONTROLLER_LOST
from interlock.testing import watchdog
from interlock.testing.agent_process import AgentProcess
from interlock.wire.jobs import JobSpec
from interlock.wire.workloads import QUEUE, WorkloadSpec, WorkloadView


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[AgentProcess]]:
    folder = tmp_path_factory.mktemp("fleet")
    agents = [AgentProcess(folder / name, *OPTIONS, durations=PATIENT) for name in ("one", "two")]
    try:
        with ThreadPoolExecutor(len(agents)) as pool:
            list(pool.map(AgentProcess.start, agents))
        yield agents
    finally:
        for agent in agents:
            agent.kill()


@pytest.fixture
def shop(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """One whose processes do not outlive a test that fails."""
    started: list[Program] = []
    start = shop.start

    def start_and_remember(*words: str, **more: Any) -> Program:
        started.append(start(*words, **more))
        return started[-1]

    monkeypatch.setattr(shop, "start", start_and_remember)
    yield shop
    for each in started:
        each.kill()
        each.communicate()


def run(shop: Shop, spec: WorkloadSpec) -> Program:
    """`interlock workload run`, as a process."""
    document: dict[str, Any] = {
        "kind": spec.kind,
        "with": spec.spec,
        "duration": spec.duration_s,
        "rate": spec.rate,
        "lead": spec.lead_s,
        "skew-limit": spec.skew_limit_s,
        "ready-within": spec.ready_within_s,
        "agents": list(spec.agents),
    }
    (shop.folder / "load.yml").write_text(json.dumps(document))
    return shop.start("workload", "run", "load.yml", new_session=True)


def work(shop: Shop, spec: WorkloadSpec) -> Program:
    """The same by way of a worker that drives fleets."""
    payload = msgspec.Raw(msgspec.json.encode({"workload": spec}))
    job = JobSpec(task=TASK, queue=QUEUE, input=payload, losses=0)
    shop.do(lambda port: port.services.jobs.submit(job))
    return shop.start("worker", "start", "interlock.workloads", "--queue", QUEUE, new_session=True)


def kill(running: Program) -> None:
    """As a machine that loses its power would; nothing of it is left either."""
    family = watchdog.tree(running.pid)
    running.kill()
    running.communicate(timeout=PATIENCE_S)
    until_so(lambda: all(map(gone, family)), "the controller and all below it are gone")


def workloads(shop: Shop) -> list[WorkloadView]:
    async def look(port: EmbeddedOrchestrator) -> list[WorkloadView]:
        return (await port.services.workloads.find(Query(kind="workload")))[0]

    return shop.do(look)


def recorded(shop: Shop, state: str) -> None:
    """Until the store knows of all agents that they are there."""
    until_so(
        lambda: [each.state for each in workloads(shop)] == [state] * 2, f"both are {state} in the store"
    )


def settle(shop: Shop) -> None:
    """Ten minutes later somebody else looks after the database, and ten minutes later again."""

    async def sweep(port: EmbeddedOrchestrator) -> None:
        store = port.services.store
        assert isinstance(store, SqliteStore)
        for minutes in (10, 20):
            ahead_ns = minutes * 60_000_000_000
            store._clock._host_ns = lambda ahead_ns=ahead_ns: time.time_ns() + ahead_ns  # type: ignore[misc]
            while await port.services.sweep() + await port.services.deliver():
                pass
        assert (await audit(store, JOURNALLED, ["job", "workload"])).faults == []

    shop.do(sweep)


@pytest.mark.long
def test_a_controller_killed_while_it_checks_its_agents_starts_no_workload(
    cli: RunCli, shop: Shop, agents: list[AgentProcess]
) -> None:
    steps = [moves(agent) for agent in agents]
    agents[1].pause()
    try:
        running = run(shop, asked(agents))
        job_id = shop.next_job()
        until_so(lambda: shop.job(job_id).state == "RUNNING", "the job runs")
        kill(running)
    finally:
        agents[1].resume()
    assert asyncio.run(states(agents, PATIENCE_S)) == ["IDLE", "IDLE"]
    assert [moves(agent) for agent in agents] == steps, "nobody was asked for a workload"
    settle(shop)
    assert_told(cli, shop, job_id)
    assert workloads(shop) == []


@pytest.mark.long
def test_killed_while_its_agents_are_ready(cli: RunCli, shop: Shop, agents: list[AgentProcess]) -> None:
    running = run(shop, asked(agents, operations=0, lead_s=50.0))
    until_all_are(agents, "READY")
    recorded(shop, "READY")
    kill(running)
    assert asyncio.run(states(agents, PATIENCE_S)) == ["IDLE", "IDLE"]
    assert [moves(agent)[-1] for agent in agents] == [("READY", "IDLE", "CONTROLLER_DISCONNECT")] * 2
    settle(shop)
    assert_written_off(cli, shop)


@pytest.mark.parametrize("drive", pick([work], [run, work]))
def test_killed_while_its_agents_run(
    cli: RunCli, shop: Shop, agents: list[AgentProcess], drive: Callable[..., Program]
) -> None:
    before = [set(agent.family) for agent in agents]
    running = drive(shop, asked(agents, operations=0))
    until_all_are(agents, "RUNNING")
    recorded(shop, "RUNNING")
    job_id = workloads(shop)[0].job_id
    until_so(lambda: '"operations":' in cli("job", "logs", job_id).stdout, "a second is in the log")
    kill(running)
    assert asyncio.run(states(agents, PATIENCE_S)) == ["IDLE", "IDLE"]
    for agent, family in zip(agents, before, strict=True):
        assert moves(agent)[-2] == ("RUNNING", "ABORTING", "CONTROLLER_DISCONNECT")
        assert set(agent.family) <= family
    settle(shop)
    assert_written_off(cli, shop)
    shown = cli("workload", "show", job_id).stdout
    assert "PARTIAL" in shown
    assert "No result was saved, because its controller was lost" in shown
    assert json.loads(cli("workload", "show", job_id, "--json").stdout)["heard"]["operations"] > 0


@pytest.mark.long
def test_killed_while_its_agents_abort(cli: RunCli, shop: Shop, agents: list[AgentProcess]) -> None:
    before = [set(agent.family) for agent in agents]
    note, let_go = shop.folder / "note", shop.folder / "let-go"
    note.touch()
    stubborn = python("stubborn", note=str(note), let_go=str(let_go))
    running = run(shop, asked(agents, kind="python", spec=stubborn, operations=0))
    until_so(lambda: note.read_text().count("\n") == 2, "both have begun")
    recorded(shop, "RUNNING")
    families = [set(agent.family) - family for agent, family in zip(agents, before, strict=True)]
    job_id = workloads(shop)[0].job_id
    assert cli("workload", "abort", job_id).returncode == 0
    until_all_are(agents, "ABORTING")
    kill(running)
    assert asyncio.run(states(agents)) == ["ABORTING", "ABORTING"]
    let_go.touch()
    assert asyncio.run(states(agents, PATIENCE_S)) == ["IDLE", "IDLE"]
    assert all(gone(pid) for family in families for pid in family), "idle means that nothing is left"
    settle(shop)
    assert_written_off(cli, shop, state="CANCELED")


def assert_written_off(cli: RunCli, shop: Shop, *, state: str = "FAILED") -> None:
    """The job has ended, and of each agent it is known that nobody has heard of its end."""
    views = workloads(shop)
    found = {(view.state, view.final, view.lost, view.error) for view in views}
    assert found == {("IDLE", "ABORTED", True, CONTROLLER_LOST)}
    assert_told(cli, shop, views[0].job_id, state=state)


def assert_told(cli: RunCli, shop: Shop, job_id: str, *, state: str = "FAILED") -> None:
    view = shop.job(job_id)
    assert (view.state, len(view.attempts)) == (state, 1), "a load test does not begin again by itself"
    shown = cli("workload", "show", job_id)
    assert (shown.returncode, state in shown.stdout) == (0, True), shown.stderr
