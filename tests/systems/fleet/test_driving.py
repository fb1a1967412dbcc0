"""A fleet of real agents: they start together, are seen as one, and stop when told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from grpc import aio
from tests.agent.conftest import WORKLOADS as ODD
from tests.agent.relay import Relay
from tests.effort import pick
from tests.waiting import PATIENCE_S, until

from interlock.errors import InterlockError, SkewTooLarge, WorkloadFailed
from interlock.systems.fleet.agent_client import NOTHING_NEEDED, Access
from interlock.testing import skewed_clock
from interlock.testing.agent_process import AgentProcess
from interlock.wire.fleet import fleet_pb2 as wire
from interlock.wire.fleet.fleet_pb2_grpc import AgentServicer, add_AgentServicer_to_server
from interlock.wire.workloads import (
    Happened,
    Policy,
    Verdict,
)

from .fleets import LOADS, Driven, asked, fleet, gated, states, steps_of, until_all_have_become
from .test_merging import packed

READY, RUNNING = Happened.READY, Happened.RUNNING

FAST_S, SLOW_S = 7_200, -3_600
STALL_MS = 60_000
"""The machine may stand still between two readings of a clock; the clocks here are off by hours."""
PATIENT = Access(silence_s=PATIENCE_S)
"""For agents that must not be lost, however long the machine stands still."""


@pytest.fixture(scope="module")
def wrong_clocks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[AgentProcess]]:
    """Four agents: one is right, one two hours fast, one an hour slow, and one gains 1 %."""
    drifting = {**skewed_clock.environment(0), "FAKETIME": "+0 x1.01"}
    environments = [{}, skewed_clock.environment(FAST_S), skewed_clock.environment(SLOW_S), drifting]
    with fleet(tmp_path_factory.mktemp("fleet"), environments) as agents:
        yield agents


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[AgentProcess]]:
    with fleet(tmp_path_factory.mktemp("pair"), [{}, {}], "--keepalive", str(PATIENCE_S)) as agents:
        yield agents


@pytest.fixture
def two(pair: list[AgentProcess]) -> Iterator[list[AgentProcess]]:
    """Two agents that a test may kill: whoever was is there again."""
    for agent in pair:
        if not agent.running:
            agent.start()
    yield pair
    print(steps_of(pair))  # shown only where a test has failed


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The file that gated workloads wait for."""
    return tmp_path / "gate"


async def test_agents_with_wrong_clocks_begin_at_one_true_instant(wrong_clocks: list[AgentProcess]) -> None:
    began_s = time.monotonic()
    result = await Driven(asked(wrong_clocks, lead_s=2.0)).result()
    drift_ms = 10 * (time.monotonic() - began_s)  # 1 % of all the time there was
    assert (result.verdict, result.operations) == (Verdict.COMPLETE, 400)
    right, fast, slow, drifting = result.agents
    assert result.start_bound_ms is not None
    assert fast.offset_ms == pytest.approx(1_000 * FAST_S, abs=result.start_bound_ms + 1)
    assert slow.offset_ms == pytest.approx(1_000 * SLOW_S, abs=result.start_bound_ms + 1)
    # A busy machine may begin late, and each agent says by how much. What is left is due to clocks, and
    # that is within the bound which was stated before; one clock goes on drifting until the start.
    for each, off_ms in ((right, 0.0), (fast, 0.0), (slow, 0.0), (drifting, drift_ms)):
        assert each.began_ms is not None
        assert abs(each.began_ms - each.late_ms) <= result.start_bound_ms + off_ms + STALL_MS
    assert await states(wrong_clocks, PATIENCE_S) == ["IDLE"] * 4


async def test_no_agent_runs_its_first_operation_before_the_start_instant_by_the_monotonic_clock(
    wrong_clocks: list[AgentProcess], tmp_path: Path
) -> None:
    """How late each was is for the test above; an agent that is told another's instant begins early."""
    target = {"target": "marking:mark", "arguments": {"folder": str(tmp_path)}, "path": [str(LOADS)]}
    began_ns = time.monotonic_ns()
    driven = Driven(asked(wrong_clocks, kind="python", spec=target, operations=5, lead_s=2.0))
    result = await driven.result()
    assert result.verdict is Verdict.COMPLETE
    instants = [int(note.read_text()) for note in tmp_path.iterdir()]
    assert len(instants) == 4
    start = driven.drive._start
    assert start is not None
    at_ns = start.at_ns - driven.drive._reference._base_ns
    drift_ns = (time.monotonic_ns() - began_ns) // 100
    assert min(instants) >= at_ns - start.bound_ns - drift_ns


async def test_numbers_of_all_agents_are_shown_and_saved_as_one(two: list[AgentProcess], gate: Path) -> None:
    driven = Driven(gated(two, gate))
    await driven.until(lambda live: live.operations and live.running == 2)
    gate.touch()
    result = await driven.result()
    assert result.operations == sum(each.operations for each in result.agents) == 200
    assert result.latencies.count == 200
    assert max(each.latencies.max_ms or 0.0 for each in result.agents) == result.latencies.max_ms
    assert sum(second.operations for second in result.seconds) == 200
    assert all(history[-1] is Happened.COMPLETED for history in driven.facts.values())
    assert len(driven.facts) == 2


@pytest.mark.parametrize("moment", pick(["running"], ["at once", "ready", "running"]))
async def test_a_stop_at_any_moment_leaves_every_agent_idle_and_a_result(
    two: list[AgentProcess], moment: str, gate: Path
) -> None:
    driven = Driven(gated(two, gate, lead_s=50.0 if moment == "ready" else 0.5))
    if moment == "ready":
        await driven.until(lambda live: {each.state for each in live.members} == {"ready"})
    elif moment == "running":
        await driven.until(lambda live: live.operations)
    driven.drive.stop("enough")
    result = await driven.result()
    assert result.verdict is Verdict.ABORTED
    assert "enough" in result.sentence
    assert bool(result.operations) is (moment == "running")
    assert result.latencies.count == result.operations
    assert await states(two) == ["IDLE"] * 2
    finals = {each.status for each in result.agents}
    assert finals == ({"LOST"} if moment == "at once" else {"ABORTED"})


@pytest.mark.long  # a stop at any moment leaves every agent idle
async def test_a_stopped_fleet_takes_the_next_workload_at_once(two: list[AgentProcess], gate: Path) -> None:
    first = Driven(gated(two, gate))
    await first.until(lambda live: live.running == 2)
    first.drive.stop("the next one")
    await first.result()
    result = await Driven(asked(two, operations=50)).result()
    assert (result.verdict, result.operations) == (Verdict.COMPLETE, 100)


@pytest.mark.parametrize(
    ("policy", "moment"),
    [
        (Policy.ALL, READY),
        pytest.param(Policy.ALL, RUNNING, marks=pytest.mark.long),
        pytest.param(Policy.BEST_EFFORT, READY, marks=pytest.mark.long),
        (Policy.BEST_EFFORT, RUNNING),
    ],
)
async def test_a_killed_agent_is_reported_as_lost_and_the_policy_decides_the_verdict(
    two: list[AgentProcess], policy: Policy, moment: Happened, gate: Path
) -> None:
    enough = policy is Policy.BEST_EFFORT
    lead_s = 0.5 if moment is RUNNING else 8.0 if enough else 50.0
    driven = Driven(gated(two, gate, policy=policy, lead_s=lead_s))
    # On a machine that stands still those that should only be ready may have begun: they are killed then.
    enough_states = {str(moment), str(RUNNING)}
    # Until the start was told, nothing has begun and there is no result, only a refusal.
    marker = "begin at"
    await driven.until(
        lambda live: (
            {each.state for each in live.members} <= enough_states
            and any(marker in line for line in driven.lines)
        )
    )
    lost = two[0].address
    two[0].kill()
    gate.touch()
    result = await driven.result()
    assert result.verdict is (Verdict.PARTIAL if enough else Verdict.FAILED)
    assert [each.status for each in result.agents] == ["LOST", "COMPLETED" if enough else "ABORTED"]
    assert "does not answer" in result.agents[0].error
    assert driven.facts[lost][-1] is Happened.LOST
    assert (result.coverage.completed, result.coverage.lost) == ((1, 1) if enough else (0, 2))
    assert await states(two[1:]) == ["IDLE"]


async def test_an_agent_that_falls_silent_is_lost_and_stops_by_itself(tmp_path: Path, gate: Path) -> None:
    """Between them nothing is passed on any more, and no connection is closed.

    Either end misses the other by its default: a machine may stand still for ten seconds before the cut.
    """
    with fleet(tmp_path, [{}, {}]) as agents:
        async with Relay(agents[0].address) as relay:
            spec = gated(agents, gate, policy=Policy.BEST_EFFORT)
            spec = msgspec.structs.replace(spec, agents=(relay.address, agents[1].address))
            driven = Driven(spec, access=PATIENT, others={relay.address: NOTHING_NEEDED})
            await driven.until(lambda live: live.operations and live.running == 2)
            relay.cut()
            assert await states(agents[:1], PATIENCE_S) == ["IDLE"]
            await driven.until(lambda live: live.members[0].state == Happened.LOST)
            gate.touch()
            result = await driven.result()
    assert result.verdict is Verdict.PARTIAL
    assert [each.status for each in result.agents] == ["LOST", "COMPLETED"]
    assert "does not answer" in result.agents[0].error
    assert driven.facts[relay.address][-1] is Happened.LOST


async def test_an_agent_that_hangs_is_named_while_it_runs_and_goes_on_when_it_can(
    two: list[AgentProcess], gate: Path
) -> None:
    """The last second that was heard of it was shown again and again."""
    driven = Driven(gated(two, gate), access=PATIENT)
    await driven.until(lambda live: live.operations and live.running == 2)
    two[0].pause()
    try:
        # Where the machine stands still both are silent, until the other one reports again.
        live = await driven.until(lambda live: list(live.silent) == [two[0].address] and live.running == 1)
        assert f"{two[0].address} silent for" in live.sentence
    finally:
        two[0].resume()
    await driven.until(lambda live: not live.silent and live.running == 2)
    gate.touch()
    result = await driven.result()
    assert (result.verdict, result.operations) == (Verdict.COMPLETE, 200)
    assert [each.status for each in result.agents] == ["COMPLETED", "COMPLETED"]


@pytest.mark.long  # an agent that falls silent is lost in the same way
async def test_an_agent_that_hangs_is_lost(two: list[AgentProcess], gate: Path) -> None:
    """It was noticed after 65 s."""
    spec = gated(two, gate, policy=Policy.BEST_EFFORT)
    driven = Driven(spec, access=PATIENT, others={two[0].address: NOTHING_NEEDED})
    await driven.until(lambda live: live.operations and live.running == 2)
    two[0].pause()
    try:
        await driven.until(lambda live: live.members[0].state == Happened.LOST)
    finally:
        two[0].resume()
    gate.touch()
    result = await driven.result()
    assert result.verdict is Verdict.PARTIAL
    assert [each.status for each in result.agents] == ["LOST", "COMPLETED"]
    assert await states(two, PATIENCE_S) == ["IDLE", "IDLE"]


async def test_an_agent_that_is_killed_while_it_stops_is_not_waited_for(
    two: list[AgentProcess], tmp_path: Path
) -> None:
    note, let_go = tmp_path / "note", tmp_path / "let-go"
    note.touch()
    arguments = {"note": str(note), "let_go": str(let_go)}
    stubborn = {"target": "odd:stubborn", "arguments": arguments, "path": [str(ODD)]}
    driven = Driven(asked(two, kind="python", spec=stubborn))
    # Running is not stubborn yet: one that is told to stop before its function has begun stops at once.
    await until(lambda: note.read_text().count("\n") == 2, "both have begun")
    driven.drive.stop("enough")
    await until_all_have_become(two, "ABORTING")
    two[0].kill()
    let_go.touch()
    result = await driven.result()
    assert result.verdict is Verdict.ABORTED
    assert [each.status for each in result.agents] == ["LOST", "ABORTED"]
    assert "does not answer" in result.agents[0].error
    assert await states(two[1:]) == ["IDLE"]


async def test_an_agent_that_cannot_be_started_is_named_and_the_others_return_to_idle(
    two: list[AgentProcess],
) -> None:
    spec = asked(two)
    two[1].kill()
    with pytest.raises(WorkloadFailed, match="Nothing was started: 1 of 2 agents is missing") as refused:
        await Driven(spec).result()
    assert f"{spec.agents[1]} does not answer" in refused.value.sentence
    assert await states(two[:1]) == ["IDLE"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"kind": "nap"}, "knows no workload 'nap'"),
        (
            {"spec": {"seconds": 3}},
            "with has the key `seconds`, which sleep does not know; there is operation_s",
        ),
    ],
)
async def test_the_controller_reports_the_error_with_which_an_agent_refuses_a_workload(
    two: list[AgentProcess], more: dict[str, Any], words: str
) -> None:
    with pytest.raises(WorkloadFailed) as refused:
        await Driven(asked(two, **more)).result()
    assert words in refused.value.sentence
    assert await states(two) == ["IDLE"] * 2


async def test_an_agent_that_is_busy_is_left_alone(two: list[AgentProcess], gate: Path) -> None:
    first = Driven(gated(two[:1], gate))
    await first.until(lambda live: live.operations)
    with pytest.raises(WorkloadFailed, match=r"is RUNNING with the workload j_0123456789ab_.* for a test"):
        await Driven(asked(two)).result()
    first.drive.stop("done")
    assert (await first.result()).operations


async def test_clocks_that_are_not_known_well_enough_start_nothing(two: list[AgentProcess]) -> None:
    driven = Driven(asked(two, skew_limit_s=1e-6))
    with pytest.raises(SkewTooLarge, match="is the limit"):
        await driven.result()
    assert driven.facts == {}


class Liar(AgentServicer):
    """Says that it has done what it was asked for, and sends numbers that cannot be."""

    async def GetStatus(self, *_: Any) -> wire.StatusAnswer:  # noqa: N802
        return wire.StatusAnswer(state="IDLE", kinds=["sleep"])

    async def Ping(self, request: Any, _: Any) -> wire.PingAnswer:  # noqa: N802
        at = request.sent_unix_ns
        return wire.PingAnswer(sent_unix_ns=at, received_unix_ns=at, answered_unix_ns=at)

    async def StartWorkload(self, *_: Any) -> wire.StartAnswer:  # noqa: N802
        self.started.set()
        return wire.StartAnswer()

    async def RunWorkloadWithLiveStats(self, *_: Any) -> Any:  # noqa: N802
        self.started = asyncio.Event()
        yield wire.WorkloadStats(sequence=1, status=wire.READY)
        await self.started.wait()
        sound = packed([1_000] * 5)
        yield _second(2, sound)
        yield _second(3, sound[:-5])
        yield wire.WorkloadStats(sequence=4, status=wire.COMPLETED, completed=True, operations=10)

    async def AbortWorkload(self, *_: Any) -> wire.AbortAnswer:  # noqa: N802
        return wire.AbortAnswer()


def _second(sequence: int, histogram: bytes) -> wire.WorkloadStats:
    return wire.WorkloadStats(
        sequence=sequence,
        status=wire.RUNNING,
        operations=5 * (sequence - 1),
        interval_operations=5,
        elapsed_ns=10**9,
        started_at_unix_ns=1,
        histogram=histogram,
    )


async def test_a_corrupt_histogram_flags_its_agent_and_the_rest_stands(
    two: list[AgentProcess],
) -> None:
    server = aio.server()
    add_AgentServicer_to_server(Liar(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        spec = asked(two[:1])
        driven = Driven(msgspec.structs.replace(spec, agents=(*spec.agents, f"127.0.0.1:{port}")))
        result = await driven.result()
    finally:
        await server.stop(0)
    honest, liar = result.agents
    assert (honest.corrupt, liar.corrupt[:10]) == ("", "report 3: ")
    assert result.verdict is Verdict.DEGRADED
    assert liar.agent in result.sentence
    assert (result.operations, result.latencies.count) == (110, 105)
    assert any("numbers that cannot be true" in line for line in driven.lines)


@pytest.mark.long  # it has to be later than a clock may be unknown on a busy machine
async def test_an_agent_that_prepares_for_too_long_starts_late_and_the_result_is_degraded(
    tmp_path: Path, gate: Path
) -> None:
    target = {"target": "waiting:Work", "arguments": {"gate": str(gate)}, "path": [str(LOADS)]}
    with fleet(tmp_path, [{}, {"LATE": "1"}]) as agents:
        driven = Driven(asked(agents, kind="python", spec=target, rate=20.0, operations=20, skew_limit_s=5.0))
        await driven.until(lambda live: live.elapsed_s > 8.0 and live.members[0].state == Happened.COMPLETED)
        gate.touch()
        result = await driven.result()
    assert (result.verdict, result.operations) == (Verdict.DEGRADED, 40)
    punctual, late = result.agents
    assert late.late_ms > max(5_000.0, punctual.late_ms)
    assert result.duration_s > 8.0
    assert max(each.agents for each in result.seconds) == 1, "they never worked together"
    assert result.rate < 10.0


async def test_a_store_that_is_away_does_not_hold_up_the_workload(two: list[AgentProcess]) -> None:
    driven = Driven(asked(two))
    counts: list[int] = []

    async def away(facts: Any) -> None:
        counts.append(len(facts))
        raise InterlockError("The store says no.")

    driven.drive._ports = msgspec.structs.replace(driven.drive._ports, store_facts=away)
    assert (await driven.result()).verdict is Verdict.COMPLETE
    assert counts
    assert any("refused the reports" in line for line in driven.lines)
