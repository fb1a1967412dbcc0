"""Interlock as the bench of the job queues meets it: real processes, a real file, few jobs."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket

import pytest
from bench.jobs.contenders import US
from bench.jobs.peers import handler
from bench.jobs.peers.workers import WorkerFailed, Workers
from bench.jobs.places import SqliteGround
from bench.jobs.talking import talking
from bench.jobs.turns import drained, idled
from bench.stores.bare.loop import Unexpected
from tests.effort import pick

JOBS = 50


@pytest.mark.parametrize("workers", pick([1], [1, 2]))
def test_every_job_is_done_once_by_real_workers(workers: int) -> None:
    turn = drained(SqliteGround(), US, JOBS, workers)
    assert turn.jobs == JOBS
    assert turn.submitted_in_bulk
    assert turn.drain_s > 0
    assert turn.submit_s > 0
    assert turn.queued.after > turn.queued.before > 0
    assert turn.held_mb[-1] > 10 * workers


@pytest.mark.long  # the other test runs the same program
def test_single_jobs_reach_an_idle_worker() -> None:
    turn = idled(SqliteGround(), US, rounds=5, submissions=10)
    assert len(turn.micros) == 5
    assert min(turn.micros) > 0
    assert turn.submit_us > 0
    assert turn.held_mb > 10


def test_a_contender_that_cannot_begin_is_named_with_the_reason(tmp_path: Path) -> None:
    with (
        pytest.raises(
            Unexpected,
            match=r"interlock could not prepare: BadStoreUrl: 'nowhere:' is not the URL of a store",
        ),
        talking(US, "nowhere:", tmp_path),
    ):
        pass


@pytest.mark.long
def test_an_unknown_command_ends_the_turn_with_an_error(tmp_path: Path) -> None:
    with (
        pytest.raises(Unexpected, match="interlock could not fly"),
        talking(US, f"sqlite:///{tmp_path}/jobs.db", tmp_path) as conversation,
    ):
        conversation.ask("fly")


def test_a_worker_that_ends_before_its_first_job_is_found_out(tmp_path: Path) -> None:
    workers = Workers(tmp_path)
    workers.open_for_waiting(tmp_path / "gate")
    workers.start([[sys.executable, "-c", "raise SystemExit('no such queue')"]])
    try:
        with pytest.raises(WorkerFailed, match="a worker has ended:\nno such queue"):
            workers.wait_at_the_gate()
    finally:
        workers.stop()


def test_every_thread_of_a_worker_waits_at_the_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tmp_path / "seen"
    seen.write_bytes(bytes(3))
    monkeypatch.setenv(handler.SEEN, str(seen))
    monkeypatch.setenv(handler.GATE, str(tmp_path / "gate"))
    monkeypatch.setattr(handler, "_seen", None)
    with socket(AF_UNIX, SOCK_STREAM) as gate:
        gate.bind(str(tmp_path / "gate"))
        gate.listen()
        threads = [threading.Thread(target=handler.tick, args=(number,)) for number in (0, 2)]
        for thread in threads:
            thread.start()
        waiting, _ = gate.accept()
        with waiting:
            assert seen.read_bytes() == bytes(3)
            waiting.sendall(b"!")
            for thread in threads:
                thread.join()
    handler.tick(2)
    assert seen.read_bytes() == b"\x01\x00\x02"
