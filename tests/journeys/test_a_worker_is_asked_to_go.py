"""A worker is asked to go, at whichever moment: it goes in time, and nothing that it had is lost.

What it is doing may finish until the soft deadline, is then told to stop and given back without using
up a try; and when all else fails the process is gone at the hard deadline.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.journeys import errands
from tests.journeys.conftest import Server
from tests.journeys.crew import PATIENCE_S, PROGRAM, QUICK, Crew, Worker, alive

from interlock import JobSpec
from interlock.worker.codec import encode

IN_TIME_S = QUICK.shutdown_deadline_s + 20.0
"""The hard deadline, and what a busy machine may add to it; what it does not wait for lasts two minutes."""

SLOW_TO_IMPORT = """
import time
from interlock import task
from tests.journeys.errands import is_open, note

note("importing")
while not is_open("imported"):
    time.sleep(0.01)

@task
async def anything() -> None: ...
"""

REAPING = """
import sys
from interlock.cli import project
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.worker.entry import run_worker
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import load_tasks

module, _, url, _, name = sys.argv[1:]
import ctypes
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans come to it, as to PID 1
durations = project.load(url).settings.durations
settings = WorkerSettings(name=name, durations=durations, reap_orphans=True)
sys.exit(run_worker(settings, load_tasks(module), lambda: EmbeddedOrchestrator(url)))
"""


async def _goes(worker: Worker) -> tuple[int, float]:
    """Ask it, and wait for its end: the exit code, and how long it took."""
    began = time.monotonic()
    worker.ask_to_go()
    code = await worker.gone()
    return code, time.monotonic() - began


async def test_while_it_imports_the_tasks(crew: Crew) -> None:
    (crew.folder / "slow_to_import.py").write_text(SLOW_TO_IMPORT)
    worker = await crew.start("anna", module="slow_to_import")
    await crew.noted("importing")
    worker.ask_to_go()
    crew.open_gate("imported")
    assert await worker.gone() == 0
    assert "running" not in worker.states


async def test_while_it_starts(crew: Crew) -> None:
    made = await crew.il.submit(errands.jot, 1)
    worker = await crew.start("anna")
    await worker.says("worker_started")
    code, took_s = await _goes(worker)
    assert code == 0
    assert took_s < IN_TIME_S
    # It had time to do the job, or has left it alone; nothing in between.
    view = await crew.il.job(made.id)
    assert view.state in ("PENDING", "COMPLETED") or view.ready_at is not None
    assert view.losses == 0


@pytest.mark.parametrize("kind", ["postgres", "redis"])
async def test_while_it_connects_to_a_database_that_is_away(
    crew: Crew, own_server: Callable[[str], Server], kind: str
) -> None:
    server = own_server(kind)
    server.kill()
    crew.url = server.url
    worker = await crew.start("anna")
    await worker.says("connection_failed")
    code, took_s = await _goes(worker)
    assert code == 0
    assert took_s < IN_TIME_S
    assert worker.states[-2:] == ["shutting_down", "stopped"]


async def test_while_it_backs_off(crew: Crew) -> None:
    worker = await crew.ready("anna")
    code, took_s = await _goes(worker)
    assert code == 0
    assert took_s < IN_TIME_S
    assert worker.states[-2:] == ["shutting_down", "stopped"]


async def test_in_the_middle_of_a_short_task_which_it_completes(crew: Crew) -> None:
    worker = await crew.start("anna")
    made = await crew.il.submit(errands.wait_for, QUICK.shutdown_soft_s / 2)
    await crew.sees(made.id, lambda view: view.state == "RUNNING", "it is RUNNING")
    waits = await crew.il.submit(errands.jot, 1)
    await crew.ended(waits.id)
    code, _ = await _goes(worker)
    assert code == 0
    assert await made.result(timeout_s=0.1) == QUICK.shutdown_soft_s / 2
    assert len((await made.view()).attempts) == 1


SCRIPT = f'echo "shell began 1" > $JOURNEY_NOTES; exec sleep {errands.LONG_S}'
SHELL = JobSpec(task="interlock.shell", input=encode({"run": SCRIPT}, "arguments"))


@pytest.mark.parametrize(
    "spec",
    [
        errands.polite.spec(),
        errands.deaf.spec(),
        errands.polite_thread.spec(),
        errands.family.spec(),
        SHELL,
    ],
    ids=["polite", "deaf", "thread", "process", "shell"],
)
async def test_in_the_middle_of_a_long_task_which_it_gives_back(crew: Crew, spec: JobSpec) -> None:
    worker = await crew.start("anna")
    made = await crew.il.submit(spec)
    await crew.noted(spec.task.rpartition(".")[2] + " began")
    code, took_s = await _goes(worker)

    assert code == 0
    assert QUICK.shutdown_soft_s <= took_s < IN_TIME_S
    view = await made.view()
    given_back, waiting = view.attempts
    assert (given_back.state, waiting.state) == ("STALE", "QUEUED")
    # It has cost nothing: no failure, no loss, no try.
    assert given_back.failure is None
    assert view.losses == 0
    assert given_back.lease is not None
    assert given_back.lease.state == "REVOKED"
    releases = [entry.note.reason for entry in await crew.history(made.id) if entry.note.reason]
    assert releases == ["shutdown"]
    if spec.task.endswith("family"):
        assert not any(alive(int(pid)) for pid in crew.notes[-1].partition(" in ")[2].split())


async def test_what_a_leaving_worker_has_saved_is_where_the_next_one_begins(crew: Crew) -> None:
    anna = await crew.start("anna")
    made = await crew.il.submit(errands.stepwise, steps=4, stuck_after=2)
    await crew.noted("stepwise 2")
    assert (await _goes(anna))[0] == 0
    await crew.start("ben")
    assert await made.result(timeout_s=60) == {"began_after": 2, "attempt": 2}
    assert (await made.view()).losses == 0


async def test_a_thread_that_does_not_listen_cannot_keep_it(crew: Crew) -> None:
    worker = await crew.start("anna")
    made = await crew.il.submit(errands.deaf_thread, "stubborn")
    await crew.noted("stubborn began")
    code, took_s = await _goes(worker)
    assert code == 1, "the end had to be forced, and the exit code says so"
    assert took_s < IN_TIME_S
    # Whatever could not be given back is missed, and done by somebody else.
    crew.open_gate("stubborn")
    await crew.start("ben")
    assert (await crew.ended(made.id)).state == "COMPLETED"
    assert len((await made.view()).attempts) == 2


@pytest.mark.parametrize("kind", ["postgres", "redis"])
async def test_with_the_database_away_in_the_middle_of_a_task(
    tmp_path: Path, own_server: Callable[[str], Server], kind: str
) -> None:
    server = own_server(kind)
    crew = Crew(tmp_path, server.url)
    await crew.open()
    try:
        worker = await crew.start("anna")
        made = await crew.il.submit(errands.polite)
        await crew.noted("polite began")
        server.kill()
        _, took_s = await _goes(worker)
        assert took_s < IN_TIME_S
        server.start()
        await crew.start("ben")
        await crew.noted("polite began", times=2)
        view = await crew.sees(made.id, lambda view: len(view.attempts) == 2, "somebody else has it")
        assert view.attempts[0].state == "STALE"
    finally:
        print(crew.story())
        await crew.close()


async def test_a_second_and_a_third_signal_are_harmless(crew: Crew) -> None:
    worker = await crew.start("anna")
    made = await crew.il.submit(errands.held, "errand")
    await crew.noted("errand began 1")
    worker.ask_to_go()
    await worker.is_in("shutting_down")
    worker.ask_to_go()
    worker.ask_to_go(signal.SIGINT)
    crew.open_gate("errand.1")
    assert await worker.gone() == 0
    assert await made.result(timeout_s=0.1) == f"attempt 1 in {worker.pid}"
    assert worker.said("invalid_transition_attempted") == []


async def test_as_the_first_process_of_a_container(crew: Crew) -> None:
    """PID 1 has no default signal handlers, and inherits every orphan."""
    within = _container()
    program = PROGRAM if within else (sys.executable, "-c", REAPING)
    worker = await crew.start("anna", within=within, program=program)
    await worker.is_in("backing_off")
    if within:
        worker.pid = _first_process_inside(worker.pid)
    adopter, orphans = await (await crew.il.submit(errands.orphanage)).result(timeout_s=PATIENCE_S)
    assert orphans == 3
    assert adopter == (1 if within else worker.pid)
    code, took_s = await _goes(worker)
    assert code == 0
    assert took_s < IN_TIME_S


def _container() -> tuple[str, ...]:
    """What makes a process the first one of its own world; empty where nobody may do that."""
    for who in ((), ("--user", "--map-root-user")):
        command = ("unshare", *who, "--pid", "--fork", "--kill-child", "--mount-proc")
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    return ()


def _first_process_inside(unshare: int) -> int:
    children = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()
    return int(children[0])
