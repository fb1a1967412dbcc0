"""A worker is asked to go, at whichever moment: it goes in time, and nothing that it had is lost.

What it is doing may finish until the soft deadline, is then told to stop and given back without using
up a try; and when all else fails the process is gone at the hard deadline.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.journeys import errands
from tests.journeys.conftest import Server
from tests.journeys.crew import FORCES_SOON, LETS_FINISH, STEADY, Crew, Place, Worker, alive
from tests.waiting import PROGRAM_S

from interlock import JobHandle, JobSpec
from interlock.worker.codec import encode

INSISTS = msgspec.structs.replace(
    STEADY, abort_warning_s=5.0, abort_kill_s=10.0, cancel_deadline_s=20.0, shutdown_deadline_s=36.0
)
"""Tasks that do not listen are stopped after 22 s, eleven before the end is forced."""

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


async def _goes(worker: Worker) -> int:
    """Ask it, and wait for its end, which comes long before that of a handler; the exit code."""
    worker.ask_to_go()
    return await worker.gone()


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
    assert await _goes(worker) == 0
    # It had time to do the job, or has left it alone; nothing in between.
    view = await crew.il.job(made.id)
    assert view.state in ("PENDING", "COMPLETED") or view.ready_at is not None
    assert view.losses == 0


@pytest.mark.parametrize("kind", [pytest.param("postgres", marks=pytest.mark.long), "redis"])
async def test_while_it_connects_to_a_database_that_is_away(
    crew: Crew, own_server: Callable[[str], Server], kind: str
) -> None:
    server = own_server(kind)
    server.kill()
    crew.url = server.url
    worker = await crew.start("anna")
    await worker.says("connection_failed")
    assert await _goes(worker) == 0
    assert worker.states[-2:] == ["shutting_down", "stopped"]


async def test_while_it_backs_off(crew: Crew) -> None:
    worker = await crew.ready("anna")
    assert await _goes(worker) == 0
    assert worker.states[-2:] == ["shutting_down", "stopped"]


async def test_in_the_middle_of_a_short_task_which_it_completes(crew: Crew) -> None:
    await crew.open(LETS_FINISH)
    worker = await crew.start("anna")
    made = await crew.il.submit(errands.held, "errand")
    await crew.noted("errand began 1")
    worker.ask_to_go()
    await worker.is_in("shutting_down")
    crew.open_gate("errand.1")
    assert await worker.gone() == 0
    view = await made.view()
    assert [attempt.state for attempt in view.attempts] == ["SUCCEEDED"]


SCRIPT = f'echo "shell began 1" > $JOURNEY_NOTES; exec sleep {errands.LONG_S}'
SHELL = JobSpec(task="interlock.shell", input=encode({"run": SCRIPT}, "arguments"))


async def test_in_the_middle_of_long_tasks_that_listen_which_it_gives_back(crew: Crew) -> None:
    worker = await crew.start("anna")
    made = [await crew.il.submit(task) for task in (errands.polite, errands.polite_thread)]
    await crew.noted("polite began")
    await crew.noted("polite_thread began")
    assert await _goes(worker) == 0
    for handle in made:
        await _was_given_back(crew, handle)


@pytest.mark.long  # it is 22 s before those are stopped that do not listen
async def test_in_the_middle_of_long_tasks_that_do_not_listen_which_it_gives_back(crew: Crew) -> None:
    await crew.open(INSISTS)
    worker = await crew.start("anna")
    made = [await crew.il.submit(work) for work in (errands.deaf, errands.family, SHELL)]
    for name in ("deaf", "family", "shell"):
        await crew.noted(f"{name} began")
    family = (await crew.noted("family began")).partition(" in ")[2].split()
    assert await _goes(worker) == 0
    for handle in made:
        await _was_given_back(crew, handle)
    assert not any(alive(int(pid)) for pid in family)


async def _was_given_back(crew: Crew, made: JobHandle) -> None:
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


async def test_the_next_worker_continues_from_the_checkpoint_of_a_worker_that_shut_down(crew: Crew) -> None:
    anna = await crew.start("anna")
    made = await crew.il.submit(errands.stepwise, steps=4, stuck_after=2)
    await crew.noted("stepwise 2")
    assert await _goes(anna) == 0
    await crew.start("ben")
    assert await made.result(timeout_s=PROGRAM_S) == {"began_after": 2, "attempt": 2}
    assert (await made.view()).losses == 0


async def test_a_thread_that_does_not_listen_cannot_keep_it(crew: Crew) -> None:
    await crew.open(FORCES_SOON)
    worker = await crew.start("anna")
    made = await crew.il.submit(errands.deaf_thread, "stubborn")
    await crew.noted("stubborn began")
    assert await _goes(worker) == 1, "the end had to be forced, and the exit code says so"
    # Whatever could not be given back is missed, and done by somebody else.
    crew.open_gate("stubborn")
    await crew.let_leases_run_out()
    await crew.start("ben")
    assert (await crew.ended(made.id)).state == "COMPLETED"
    assert len((await made.view()).attempts) == 2


@pytest.mark.parametrize("kind", [pytest.param("postgres", marks=pytest.mark.long), "redis"])
async def test_with_the_database_away_in_the_middle_of_a_task(
    tmp_path: Path, own_server: Callable[[str], Server], kind: str
) -> None:
    server = own_server(kind)
    crew = Crew(tmp_path, Place(server.url, server))
    await crew.open(FORCES_SOON)
    try:
        worker = await crew.start("anna")
        made = await crew.il.submit(errands.polite)
        await crew.noted("polite began")
        server.kill()
        await _goes(worker)
        server.start()
        await crew.let_leases_run_out()
        await crew.start("ben")
        await crew.noted("polite began", times=2)
        view = await crew.sees(made.id, lambda view: len(view.attempts) == 2, "somebody else has it")
        assert view.attempts[0].state == "STALE"
    finally:
        print(crew.story())
        await crew.close()


async def test_a_second_and_a_third_signal_are_harmless(crew: Crew) -> None:
    await crew.open(LETS_FINISH)
    worker = await crew.start("anna")
    made = await crew.il.submit(errands.held, "errand")
    await crew.noted("errand began 1")
    worker.ask_to_go()
    await worker.is_in("shutting_down")
    worker.ask_to_go()
    worker.ask_to_go(signal.SIGINT)
    crew.open_gate("errand.1")
    assert await worker.gone() == 0
    assert await made.result() == f"attempt 1 in {worker.pid}"
    assert worker.said("invalid_transition_attempted") == []


async def test_as_the_first_process_of_a_container(crew: Crew) -> None:
    """PID 1 has no default signal handlers, and inherits every orphan."""
    within = container()
    if within:
        worker = await crew.start("anna", program=(*within, sys.executable, "-m", "interlock"))
    else:
        worker = await crew.start("anna", command=(), program=(sys.executable, "-c", REAPING))
    await worker.is_in("backing_off")
    if within:
        worker.pid = _first_process_inside(worker.pid)
    adopter, orphans = await (await crew.il.submit(errands.orphanage)).result(timeout_s=PROGRAM_S)
    assert orphans == 3
    assert adopter == (1 if within else worker.pid)
    assert await _goes(worker) == 0


def container() -> tuple[str, ...]:
    """What makes a process the first one of its own world; empty where nobody may do that."""
    for who in ((), ("--user", "--map-root-user")):
        command = ("unshare", *who, "--pid", "--fork", "--kill-child", "--mount-proc")
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    return ()


def _first_process_inside(unshare: int) -> int:
    children = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()
    return int(children[0])
