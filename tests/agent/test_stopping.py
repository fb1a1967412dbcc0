"""Stopping a workload on a real agent: it is over when nothing of it is left, whoever wanted that."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.agent.conftest import Connect, gone, python
from tests.agent.controller import Controller, now_ns
from tests.agent.relay import Relay
from tests.waiting import PATIENCE_S, until

from interlock.testing.agent_process import AgentProcess, running_agent
from interlock.wire.fleet import fleet_pb2 as wire


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


async def pids_in(note: Path) -> Sequence[int]:
    """Once they are written there."""
    await until(lambda: note.exists() and note.read_text().endswith("\n"), "it says who it is")
    return [int(word) for word in note.read_text().split()]


async def test_an_abort_while_ready_is_over_at_once(controller: Controller) -> None:
    call = controller.run("ready", "sleep", {})
    await call.until_status(wire.READY)
    answer = await controller.abort("ready")
    assert (answer.accepted, answer.state) == (True, "IDLE")
    last = await call.last()
    assert [one.status for one in call.heard] == [wire.READY, wire.ABORTED]
    assert last.completed


async def test_an_abort_ends_the_workload_after_its_cleanup_and_reports_its_operations(
    controller: Controller, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    call = await controller.started("tidy", "python", python("Tidy", note=str(note)))
    await call.until(lambda one: one.operations)
    assert (await controller.abort("tidy")).accepted
    last = await call.last()
    assert (last.status, last.operations > 0) == (wire.ABORTED, True)
    assert note.read_text() == "closed", "it was asked, and has cleaned up"


async def test_a_workload_that_ignores_abort_and_sigterm_is_killed_with_its_child_processes(
    hasty: Controller, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    call = await hasty.started("deaf", "python", python("deaf", note=str(note)))
    pids = await pids_in(note)
    answer = await hasty.abort("deaf")
    assert (answer.accepted, answer.state) == (True, "ABORTING")
    assert not (await hasty.abort("deaf")).accepted
    last = await call.last()
    assert last.status == wire.ABORTED
    assert all(map(gone, pids)), "idle means that nothing is left"


async def test_a_thread_that_blocks_does_not_hold_up_an_abort(controller: Controller, tmp_path: Path) -> None:
    note = tmp_path / "note"
    call = await controller.started("block", "python", python("block", note=str(note)))
    pids = await pids_in(note)
    await controller.abort("block")
    assert (await call.last()).status == wire.ABORTED
    assert all(map(gone, pids))


async def test_a_program_and_its_children_end_with_an_abort(controller: Controller, tmp_path: Path) -> None:
    note = tmp_path / "note"
    spec = {"command": f"setsid sh -c 'echo $$ > {note}; sleep 600' & sleep 600"}
    call = await controller.started("program", "command", spec)
    pids = await pids_in(note)
    await controller.abort("program")
    assert (await call.last()).status == wire.ABORTED
    assert all(map(gone, pids))


async def test_aborts_of_real_processes_around_their_start_leave_nothing(
    agent: AgentProcess, controller: Controller
) -> None:
    """While it waits for the start, prepares for it, may be anywhere around it, and has begun."""
    before = set(agent.family)
    for trial, (ahead_s, until_then) in enumerate(
        [(50, wire.READY), (0, wire.READY), (0, wire.RUNNING), (0, None)]
    ):
        name = f"race{trial}"
        call = controller.run(name, "sleep", {}, prepare_s=0.0 if until_then == wire.READY else 60.0)
        await call.until_status(wire.READY)
        await controller.start(name, now_ns() + ahead_s * 10**9)
        await (call.until_started() if until_then is None else call.until_status(until_then))
        await controller.abort(name)
        assert (await call.last()).status == wire.ABORTED
        assert (await controller.status()).state == "IDLE"
        assert set(agent.family) <= before


async def test_an_abort_while_a_real_process_prepares_leads_from_ready_to_idle_and_nothing_is_left(
    agent: AgentProcess, controller: Controller
) -> None:
    before = set(agent.family)
    call = controller.run("prepares", "sleep", {}, prepare_s=60.0)
    await call.until_status(wire.READY)
    await controller.start("prepares", now_ns() + 50 * 10**9)
    await until(lambda: bool(set(agent.family) - before), "its process is there")
    assert (await controller.status()).state == "READY"
    assert (await controller.abort("prepares")).accepted
    await controller.until_state("IDLE")
    assert set(agent.family) <= before
    await call.last()
    assert [one.status for one in call.heard] == [wire.READY, wire.ABORTED]
    steps = [line for line in agent.log.read_text().splitlines() if '"prepares"' in line]
    assert not [line for line in steps if "ABORTING" in line]


async def test_a_controller_that_hangs_up_ends_its_workload(
    controller: Controller, connect: Connect, agent: AgentProcess
) -> None:
    other = connect(agent.address)
    call = await other.started("hung-up", "sleep", {})
    call.hang_up()
    status = await controller.until_state("IDLE")
    assert (status.workload_id, status.final) == ("hung-up", wire.ABORTED)
    ready = other.run("hung-up-ready", "sleep", {})
    await ready.until_status(wire.READY)
    ready.hang_up()
    status = await controller.until_state("IDLE")
    assert (status.workload_id, status.final) == ("hung-up-ready", wire.ABORTED)


@pytest.mark.long  # systems/fleet/test_driving.py has it of one that runs
@pytest.mark.parametrize("state", ["READY", "RUNNING"])
async def test_the_agent_aborts_the_workload_of_a_controller_that_stops_answering_keepalives(
    tmp_path: Path, connect: Connect, state: str
) -> None:
    """Between them nothing is passed on any more, and no connection is closed.

    By default it is missed after half a minute: a machine may stand still for ten seconds before the cut.
    """
    with running_agent(tmp_path / "agent") as agent:
        async with Relay(agent.address) as relay:
            call = connect(relay.address).run("cut-off", "sleep", {})
            await call.until_status(wire.READY)
            if state == "RUNNING":
                await connect(agent.address).start("cut-off")
                await call.until_started()
            relay.cut()
            watcher = connect(agent.address)
            status = await watcher.until_state("IDLE")
            assert (status.workload_id, status.final) == ("cut-off", wire.ABORTED)
            assert not any(one.completed for one in call.heard)


async def test_an_agent_that_is_killed_leaves_nothing_behind(
    own_agent: AgentProcess, connect: Connect, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    controller = connect(own_agent.address)
    call = await controller.started("orphan", "python", python("deaf", note=str(note)))
    family = [*await pids_in(note), *own_agent.family]
    own_agent.kill()
    await until(lambda: all(map(gone, family)), "everything is gone")
    assert "UNAVAILABLE" in str((await call.refused()).code())


async def test_an_agent_that_is_killed_while_it_aborts_leaves_nothing_behind(
    own_agent: AgentProcess, connect: Connect, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    controller = connect(own_agent.address)
    await controller.started("orphan", "python", python("deaf", note=str(note)))
    family = [*await pids_in(note), *own_agent.family]
    await controller.abort("orphan")
    own_agent.kill()
    await until(lambda: all(map(gone, family)), "everything is gone")


async def test_an_agent_that_shuts_down_stops_its_workload_and_reports_it_aborted(
    own_agent: AgentProcess, connect: Connect, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    controller = connect(own_agent.address)
    call = await controller.started("last", "python", python("deaf", note=str(note)))
    pids = await pids_in(note)
    assert await asyncio.to_thread(own_agent.stop) == 0
    assert (await call.last()).status == wire.ABORTED
    assert all(map(gone, pids))


async def test_a_reader_that_stands_still_slows_nothing_and_misses_nothing(
    tmp_path: Path, connect: Connect
) -> None:
    """It reads READY, and then nothing until the workload is over."""
    note = tmp_path / "note"
    with running_agent(tmp_path / "agent", "--sample-every", "0.002") as agent:
        controller = connect(
            agent.address, options=(("grpc.http2.bdp_probe", 0),)
        )  # which takes 64 kB unread
        spec = python("verbose", note=str(note))
        request = wire.WorkloadRequest(
            workload_id="slow",
            kind="python",
            spec=json.dumps(spec).encode(),
            max_operations=2_000,
            rate=1_000,
        )
        messages = aiter(controller.stub.RunWorkloadWithLiveStats(request))
        assert (await anext(messages)).status == wire.READY
        await controller.start("slow")
        status = await controller.status(wait_idle_s=PATIENCE_S)
        assert (status.state, status.final) == ("IDLE", wire.COMPLETED)
        samples = [one async for one in messages]
    assert samples[-1].completed
    assert [one.sequence for one in samples] == list(range(2, len(samples) + 2))
    assert max(one.coalesced for one in samples) > 1, "what could not be sent was merged"
    assert samples[-1].operations == sum(one.interval_operations for one in samples) == 2_000
    assert len(note.read_bytes()) == 2_000


async def test_a_workload_that_loses_its_warden_has_failed_and_nothing_of_it_is_left(
    agent: AgentProcess, controller: Controller, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    before = set(agent.family)
    call = await controller.started("unguarded", "python", python("deaf", note=str(note)))
    pids = await pids_in(note)
    (warden,) = (pid for pid in set(agent.family) - before if parent_of(pid) == agent.pid)
    os.kill(warden, signal.SIGKILL)
    last = await call.last()
    assert last.status == wire.ERROR
    # They were killed; a process that was is gone a moment later.
    await until(lambda: all(map(gone, pids)), "nothing is left")


async def test_a_workload_that_sends_an_invalid_message_to_its_agent_ends_with_an_error(
    controller: Controller,
) -> None:
    call = await controller.started("garbled", "python", python("babble"))
    last = await call.last()
    assert last.status == wire.ERROR
    assert "sent an invalid message" in last.error
