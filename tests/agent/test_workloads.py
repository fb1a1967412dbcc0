"""One workload on a real agent, from READY to its one final message."""

from __future__ import annotations

import base64
import os
import socket
from pathlib import Path

import pytest
from hdrh.histogram import HdrHistogram
from tests.agent.conftest import python
from tests.agent.controller import Call, Controller, now_ns
from tests.agent.web import answering

from interlock.wire.fleet import fleet_pb2 as wire


def histogram_of(call: Call) -> HdrHistogram:
    """What all messages of a workload have counted together."""
    whole = HdrHistogram(1, 3_600_000_000_000, 3)
    for one in call.heard:
        if one.histogram:
            part = HdrHistogram.decode(base64.b64encode(one.histogram))
            assert part.get_total_count() == one.interval_operations
            whole.add(part)
    return whole


async def test_a_workload_is_announced_started_counted_and_completed(controller: Controller) -> None:
    call = controller.run("w1", "sleep", {"operation_s": 0.001}, max_operations=50, rate=1_000)
    ready = await call.until_status(wire.READY)
    assert (ready.sequence, ready.operations) == (1, 0)
    assert (await controller.status()).state == "READY"
    # The last word counts, so nobody has to wait until then.
    assert (await controller.start("w1", now_ns() + 50 * 10**9)).late_ns == 0
    at = now_ns()
    assert (await controller.start("w1", at)).late_ns > 0
    last = await call.last()
    assert (last.status, last.operations, last.errors) == (wire.COMPLETED, 50, 0)
    assert last.started_at_unix_ns >= at
    assert last.late_ns > 0
    begun = [not one.preparing for one in call.heard if one.status == wire.RUNNING]
    assert begun == sorted(begun), "it prepares, and then it has begun"
    assert sum(one.interval_operations for one in call.heard) == 50
    assert histogram_of(call).get_total_count() == 50
    assert histogram_of(call).get_min_value() > 1_000_000
    status = await controller.status()
    assert (status.state, status.workload_id, status.final) == ("IDLE", "w1", wire.COMPLETED)


async def test_the_operations_of_a_workload_of_two_milliseconds_are_counted_exactly(
    controller: Controller, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    note.touch()
    call = await controller.started("w2", "python", python("count", note=str(note)), duration_s=0.002)
    last = await call.last()
    assert last.operations == len(note.read_bytes())
    assert last.bytes == 7 * last.operations
    assert histogram_of(call).get_total_count() == last.operations


async def test_concurrent_lanes_perform_exactly_max_operations_in_total(
    controller: Controller, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    spec = python("count", note=str(note))
    call = await controller.started("w3", "python", spec, max_operations=5_000, concurrency=8)
    last = await call.last()
    assert last.operations == len(note.read_bytes()) == 5_000


async def test_a_failed_operation_is_counted_as_an_error_and_its_message_is_reported(
    controller: Controller,
) -> None:
    call = await controller.started("w4", "python", python("fail"), max_operations=3)
    last = await call.last()
    assert (last.status, last.operations, last.errors) == (wire.COMPLETED, 3, 3)
    error_messages = {text for one in call.heard for text in one.error_samples}
    assert error_messages == {"ValueError: this never works"}


async def test_a_failure_before_the_start_ends_the_workload_with_an_error_that_names_the_cause(
    controller: Controller,
) -> None:
    call = controller.run("w5", "python", python("nothing_like_it"), start_at_unix_ns=now_ns())
    last = await call.last()
    assert (last.status, last.operations) == (wire.ERROR, 0)
    assert "nothing_like_it" in last.error
    status = await controller.until_state("IDLE")
    assert (status.final, status.error) == (wire.ERROR, last.error)


async def test_a_class_is_made_once_and_closed_in_the_end(controller: Controller, tmp_path: Path) -> None:
    note = tmp_path / "note"
    call = await controller.started("w6", "python", python("Tidy", note=str(note)), max_operations=3)
    assert (await call.last()).operations == 3
    assert note.read_text() == "closed"


async def test_an_operation_that_does_not_end_in_time_is_cut_off_and_counted_as_failed(
    hasty: Controller,
) -> None:
    call = await hasty.started("w7", "sleep", {"operation_s": 3_600}, duration_s=0.5)
    last = await call.last()
    # On a machine that stands still its time may be over before the first operation.
    assert (last.status, last.operations - last.errors) == (wire.COMPLETED, 0)
    assert last.operations <= 1


async def test_a_program_is_one_operation_until_the_time_is_over(controller: Controller) -> None:
    call = await controller.started("w8", "command", {"command": "sleep 600; true"}, duration_s=0.3)
    last = await call.last()
    assert (last.status, last.operations, last.errors) == (wire.COMPLETED, 1, 0)


async def test_a_program_that_is_repeated_is_an_operation_each_time(controller: Controller) -> None:
    spec = {"command": ["sh", "-c", "echo no >&2; exit 3"], "repeat": True}
    call = await controller.started("w9", "command", spec, max_operations=4, concurrency=2)
    last = await call.last()
    assert (last.operations, last.errors) == (4, 4)
    error_messages = {text for one in call.heard for text in one.error_samples}
    assert error_messages == {"CommandFailed: ended with code 3: no"}


async def test_requests_are_answered_counted_and_measured(controller: Controller) -> None:
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello") as server:
        spec = {"url": f"{server.url}/path?x=1", "method": "POST", "body": "hi", "headers": {"X-One": "1"}}
        call = await controller.started("http", "http", spec, max_operations=50, concurrency=3)
        last = await call.last()
    assert (last.status, last.operations, last.errors, last.bytes) == (wire.COMPLETED, 50, 0, 250)
    assert server.connections <= 3, "a connection is used again"
    (request,) = set(server.requests)
    assert request.startswith(b"POST /path?x=1 HTTP/1.1\r\n")
    assert b"X-One: 1\r\nContent-Length: 2\r\n\r\nhi" in request


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "UnexpectedStatus: status 503"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "TimeoutError"),
        (b"what?\r\n\r\n", "the response is not HTTP"),
        (b"", "closed before a response arrived"),
    ],
)
async def test_an_answer_that_is_not_a_good_one_has_failed(
    controller: Controller, answer: bytes, error: str
) -> None:
    async with answering(answer) as server:
        # Short only where nothing else can come of it.
        spec = {"url": server.url, "timeout_s": 0.3 if error == "TimeoutError" else 60.0}
        name = f"bad-{hash(answer) % 1_000_000}"
        call = await controller.started(name, "http", spec, max_operations=2)
        last = await call.last()
    assert (last.status, last.operations, last.errors) == (wire.COMPLETED, 2, 2)
    assert error in " ".join(text for one in call.heard for text in one.error_samples)


async def test_a_server_that_is_not_there_is_known_before_the_start(controller: Controller) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/"
    call = controller.run("w11", "http", {"url": url}, start_at_unix_ns=now_ns())
    last = await call.last()
    assert last.status == wire.ERROR
    assert "ConnectionRefusedError" in last.error


async def test_a_workload_whose_process_is_killed_has_failed(controller: Controller, tmp_path: Path) -> None:
    note = tmp_path / "note"
    spec = {"command": f"echo $PPID > {note}; sleep 600"}
    call = await controller.started("w12", "command", spec)
    await call.until(lambda _: note.exists() and note.read_text())
    os.kill(int(note.read_text()), 9)
    last = await call.last()
    assert last.status == wire.ERROR
    assert "code -9" in last.error
