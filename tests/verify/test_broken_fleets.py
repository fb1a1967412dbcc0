"""What keeps a fleet correct is taken out, one by one, and a world notices."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import msgspec
import pytest

from interlock import workloads
from interlock.agent.state import AgentState, CurrentWorkload
from interlock.systems.fleet import driver
from interlock.systems.fleet.clocks import choose_start
from interlock.systems.fleet.driver import Drive
from interlock.systems.fleet.results import AgentReport, MergedReports
from interlock_verification.worlds.actors import controllers
from interlock_verification.worlds.episode import play
from interlock_verification.worlds.faults import faults_named
from interlock_verification.worlds.worlds import world_named


def is_noticed(
    claim: str, faults: str, *others: str, hours: float = 0.5, first: int = 1, seeds: int = 40
) -> bool:
    """Play episodes until one finds this claim broken, or another that is named: a rule may have several."""
    for seed in range(first, first + seeds):
        played = play(world_named("fleet"), faults_named(faults), seed=seed, hours=hours)
        if played.broken is not None and played.broken.name in (claim, *others):
            return True
    return False


async def nothing(*_: Any, **__: Any) -> None:
    """What nobody does."""


def test_an_agent_that_continues_its_workload_when_its_stream_breaks_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AgentState, "disconnected", lambda *_: None)
    assert is_noticed("fleet.stops_without_controller", "network", first=6)


def test_a_drive_that_does_not_stop_its_agents_at_the_end_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Drive, "_all_stopped", nothing)
    assert is_noticed("fleet.stops_after_drive", "none", first=3)


def test_an_agent_that_takes_a_workload_a_second_time_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    init = AgentState.__init__

    def forgetful(self: AgentState, *args: Any, **more: Any) -> None:
        init(self, *args, **more)
        self._used = deque(maxlen=0)

    monkeypatch.setattr(AgentState, "__init__", forgetful)
    assert is_noticed("fleet.taken_once", "network")


def test_an_agent_that_trusts_its_wall_clock_after_the_start_was_announced_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule, begin = AgentState._schedule, AgentState._begin
    start_times: dict[str, int] = {}

    def noted(self: AgentState, present: CurrentWorkload, start_at_unix_ns: int) -> int:
        start_times[present.workload_id] = start_at_unix_ns
        # It prepares shortly before the start, so that there is time for its clock to be set.
        assert present.checked is not None
        present.checked = msgspec.structs.replace(present.checked, prepare_s=1.0)
        return schedule(self, present, start_at_unix_ns)

    def gullible(self: AgentState, present: CurrentWorkload) -> None:
        ahead_ns = start_times[present.workload_id] - self.clocks.wall_ns()
        present.start_at_ns = self.clocks.monotonic_ns() + ahead_ns
        begin(self, present)

    monkeypatch.setattr(AgentState, "_schedule", noted)
    monkeypatch.setattr(AgentState, "_begin", gullible)
    assert is_noticed("fleet.not_before_start", "deaths", "fleet.on_time", "fleet.together")


@pytest.mark.long  # one episode in forty finds it; tests/systems/fleet/test_workload_jobs.py tries it at once
def test_load_that_starts_again_when_a_worker_gives_it_back_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workloads, "FIRST", 99)
    assert is_noticed("fleet.no_restart", "deaths", first=49)


@pytest.mark.long
def test_an_abort_that_stops_a_workload_with_another_id_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    abort = AgentState.abort

    def careless(self: AgentState, workload_id: str, reason: str = "") -> bool:
        return abort(self, self.record.workload_id or workload_id, reason)

    monkeypatch.setattr(AgentState, "abort", careless)
    assert is_noticed("fleet.late_message", "network", first=18)


def test_a_controller_that_sends_start_times_with_wrong_clock_offsets_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def trusting(now_ns: int, offsets: Any, **limits: float) -> Any:
        start = choose_start(now_ns, offsets, **limits)
        for number, agent in enumerate(start.starts_ns):
            start.starts_ns[agent] += number * 10_000_000
        return start

    monkeypatch.setattr(driver, "choose_start", trusting)
    assert is_noticed("fleet.together", "none", "fleet.on_time")


def test_a_result_that_counts_a_report_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = MergedReports._measure

    def twice(self: MergedReports, part: Any, report: AgentReport) -> str:
        measure(self, part, report)
        return measure(self, part, report)

    monkeypatch.setattr(MergedReports, "_measure", twice)
    assert is_noticed("fleet.reports_count_once", "none")


@pytest.mark.long
def test_a_drive_that_does_not_notice_that_its_agents_are_over_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The bound that is judged by is imported when a fleet is first played: it must not be the broken one.
    monkeypatch.setattr(controllers, "SLACK_S", driver.SLACK_S)
    monkeypatch.setattr(driver, "SLACK_S", 10_000.0)
    monkeypatch.setattr(Drive, "_noticed", nothing)
    assert is_noticed("fleet.drive_ends", "none")


def test_a_drive_that_reports_no_start_although_agents_have_begun_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = Drive._begin

    async def lie(self: Drive) -> None:
        await begin(self)
        await asyncio.sleep(self.spec.lead_s + 1.0)
        raise driver.too_few(self.spec, "nobody knows why", 1)

    monkeypatch.setattr(Drive, "_begin", lie)
    assert is_noticed("fleet.refusal_is_true", "none", first=3)


@pytest.mark.long  # make test notices other broken rules of these worlds
def test_an_agent_that_does_not_kill_its_workload_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgentState, "_kill", lambda *_: None)
    assert is_noticed("fleet.stops_after_drive", "none", first=3)
