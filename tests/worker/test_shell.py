"""`interlock.shell`: real commands, real signals, and nothing that outlives them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import PROGRAM_S, until
from tests.worker.board import Board, Job
from tests.worker.conftest import Start

from interlock.processes import groups
from interlock.wire.runner import CancelAck
from interlock.worker.tasks import Registry

DAEMON = """
import os, signal, sys
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.closerange(0, 3)
with open(sys.argv[1] + ".new", "w") as note:
    note.write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
signal.pause()
"""
"""Leaves its group, its session and its parent, and does not listen."""


@pytest.fixture
def registry() -> Registry:
    """Nothing has to be registered for a shell."""
    return Registry()


@pytest.fixture
def daemon(tmp_path: Path) -> str:
    """The words of a command that becomes a daemon and notes its number in `daemon`."""
    (tmp_path / "become.py").write_text(DAEMON)
    return f"{sys.executable} {tmp_path}/become.py {tmp_path}/daemon"


def until_there(path: Path) -> str:
    """The words of a command that waits for a file."""
    return f"until [ -e {path} ]; do sleep 0.01; done"


async def ended(board: Board, job: Job) -> Job:
    await board.until_state(job, "succeeded", "failed", "canceled")
    return job


def written(job: Job) -> list[str]:
    """What its steps have written."""
    return [line.text for line in job.log if line.level in ("stdout", "stderr")]


def gone(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(") ")[2][0] == "Z"
    except OSError:
        return True


async def test_shell_steps_run_one_after_the_other_with_a_live_log(board: Board, start: Start) -> None:
    steps = [{"name": "greet", "run": "echo hello; echo $WHO >&2"}, {"run": "pwd"}]
    job = board.pin("interlock.shell", {"steps": steps, "env": {"WHO": "you"}, "workdir": "/"})
    start()
    await ended(board, job)
    assert job.result["exit_code"] == 0
    assert [step["name"] for step in job.result["steps"]] == ["greet", "pwd"]
    assert {(line.level, line.text) for line in job.log if line.level in ("stdout", "stderr")} == {
        ("stdout", "hello"),
        ("stderr", "you"),
        ("stdout", "/"),
    }
    assert job.progress is not None
    assert (job.progress.done, job.progress.total) == (2, 2)


async def test_lines_of_a_shell_step_are_sent_while_it_runs(
    board: Board, start: Start, tmp_path: Path
) -> None:
    fifo = tmp_path / "go on"
    os.mkfifo(fifo)
    job = board.pin("interlock.shell", {"run": f"echo first; read x < '{fifo}'; echo last"})
    start()
    await board.until(lambda: job.lines == ["first"], "the first line")
    fifo.write_text("\n")
    await ended(board, job)
    assert job.lines == ["first", "last"]


async def test_a_shell_step_that_fails_ends_the_job_with_its_last_lines(board: Board, start: Start) -> None:
    steps = [{"run": "seq 100; exit 4"}, {"run": "echo never"}]
    job = board.pin("interlock.shell", {"steps": steps})
    start()
    await ended(board, job)
    assert job.failure.exit_code == 4
    assert job.failure.error == "The step 'seq 100; exit 4' ended with exit code 4."
    assert job.failure.details.splitlines()[-1] == "100"
    assert len(job.failure.details.splitlines()) == 50
    assert "never" not in job.lines


async def test_a_cancelled_shell_step_ends_with_every_process_that_it_started(
    board: Board, start: Start, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    note = f"echo $$ $! > '{pids}.new'; mv '{pids}.new' '{pids}'"
    script = f"sleep 600 & {note}; trap '' TERM; echo up; wait; sleep 600"
    job = board.pin("interlock.shell", {"run": script})
    start(stop_grace_s=0.1)
    await board.until(lambda: "up" in job.lines, "the step to run")
    board.cancel(job)
    await board.until_state(job, "canceled")
    assert all(gone(int(pid)) for pid in pids.read_text().split())


async def test_a_shell_step_that_exceeds_its_timeout_is_stopped_and_the_failure_names_the_limit(
    board: Board, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = timeouts_of(monkeypatch, 777.0)
    job = board.pin("interlock.shell", {"run": "echo begun; sleep 600", "timeout_s": 777.0})
    start()
    await board.until(lambda: "begun" in job.lines, "the step to run")
    limits[0].reschedule(0)
    await ended(board, job)
    assert "timeout_s is 777" in job.failure.error
    assert job.failure.failure_class == "timeout"
    assert job.failure.details.splitlines() == ["begun"], "what it has written until then"
    assert job.lines == ["begun", "The step 'echo begun; sleep 600' was stopped: timeout_s is 777."]


def timeouts_of(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[asyncio.Timeout]:
    """Return a list that gets each timeout of so many seconds, to end it when the test wants."""
    made: list[asyncio.Timeout] = []
    make = asyncio.timeout

    def timeout(delay: float | None) -> asyncio.Timeout:
        limit = make(delay)
        if delay == seconds:
            made.append(limit)
        return limit

    monkeypatch.setattr(asyncio, "timeout", timeout)
    return made


async def test_a_background_process_does_not_delay_the_end_of_a_shell_step_and_is_killed(
    board: Board, start: Start, tmp_path: Path
) -> None:
    job = board.pin("interlock.shell", {"run": f"sleep 600 & echo $! > '{tmp_path}/pid'"})
    start()
    await ended(board, job)
    assert job.state == "succeeded"
    await board.until(lambda: gone(int((tmp_path / "pid").read_text())), "it to be gone")


@pytest.mark.parametrize("wrong", [{}, {"run": "a", "steps": [{"run": "b"}]}, {"steps": []}])
async def test_a_shell_job_without_a_command_is_refused(board: Board, start: Start, wrong: Any) -> None:
    job = board.pin("interlock.shell", wrong)
    start()
    await ended(board, job)
    assert job.failure.failure_class == "user"
    assert "either one command or a list of steps" in job.failure.error


async def test_a_very_long_line_without_a_newline_is_logged_in_full(board: Board, start: Start) -> None:
    job = board.pin("interlock.shell", {"run": "head -c 20000 /dev/zero | tr '\\0' x; printf end"})
    start()
    await ended(board, job)
    assert "".join(job.lines) == "x" * 20_000 + "end"


@pytest.mark.parametrize("size", [8_192, 8_193, 24_675, 65_530, 70_000])
async def test_a_long_line_is_split_and_nothing_of_it_is_left_out(
    board: Board, start: Start, size: int
) -> None:
    job = board.pin("interlock.shell", {"run": f"head -c {size} /dev/zero | tr '\\0' x; echo"})
    start()
    await ended(board, job)
    assert "".join(job.lines) == "x" * size


async def test_an_unfinished_line_is_read_although_another_process_holds_the_output_open(
    tmp_path: Path,
) -> None:
    lines: list[str] = []
    go = tmp_path / "go"
    os.mkfifo(go)
    script = f"echo $$; printf half; read x < '{go}'"
    group = await groups.Group.start(["sh", "-c", script], lambda line, _: lines.append(line))
    await until(lambda: bool(lines), "the command has said which process it is")
    output = os.open(f"/proc/{lines[0]}/fd/1", os.O_WRONLY)
    try:
        go.write_text("\n")
        end = await group.ended()
    finally:
        os.close(output)
    assert (lines[1:], end.code, end.confirmed_dead) == (["half"], 0, True)


async def test_a_command_that_no_system_can_start_is_an_error_and_no_exit_code() -> None:
    group = await groups.Group.start(["echo", "half\0half"], lambda *_: None)
    with pytest.raises(OSError, match="embedded null byte"):
        await group.ended()


def test_a_command_starts_as_a_user_who_may_read_no_module_of_this_python() -> None:
    """On Python 3.13 `os.execvpe` imported one as that user, and each isolated step ended with code 127."""
    program = (
        "import os, sys; exec(open(sys.argv[1]).read(), {'__name__': 'warden'}); before = {*sys.modules}; "
        "os.get_exec_path({'PATH': '/bin'}); print({*sys.modules} - before)"
    )
    command = [sys.executable, "-I", "-S", "-c", program, groups.WARDEN]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PROGRAM_S)
    assert loaded.stdout.strip() == "set()"


def steps_told(job: Job) -> list[str]:
    """What the log says about steps, without how long they took."""
    return [re.sub(r" after [0-9.]+ s", "", line) for line in job.lines]


async def test_the_log_lists_each_step_with_its_name_and_its_outcome(board: Board, start: Start) -> None:
    steps = [
        {"name": "build", "run": "echo made"},
        {"name": "lint", "run": "exit 3", "continue_on_error": True},
        {"name": "slow", "run": "sleep 600", "timeout_s": 0.1, "continue_on_error": True},
        {"name": "test", "run": "exit 4"},
        {"name": "never", "run": "true"},
    ]
    job = board.pin("interlock.shell", {"steps": steps})
    start()
    await ended(board, job)
    assert steps_told(job) == [
        "The step 'build' begins.",
        "made",
        "The step 'build' succeeded.",
        "The step 'lint' begins.",
        "The step 'lint' ended with exit code 3; the job continues.",
        "The step 'slow' begins.",
        "The step 'slow' was stopped: it took too long; the job continues.",
        "The step 'test' begins.",
        "The step 'test' ended with exit code 4.",
    ]
    marks = ["step", "passed", "step", "failed", "step", "failed", "step", "failed"]
    assert [line.level for line in job.log if line.level != "stdout"] == marks, "programs read levels"
    assert re.search(r"exit code 4 after [0-9.]+ s\.$", job.lines[-1])
    assert job.failure.error == "The step 'test' ended with exit code 4.", "the same each time"


@pytest.mark.parametrize(
    ("given", "last"),
    [
        ({"run": "exit 4"}, "The step 'exit 4' ended with exit code 4."),
        ({"run": "kill -9 $$"}, "The step 'kill -9 $$' was killed by SIGKILL."),
        (
            {"steps": [{"name": "test", "run": "sleep 600", "timeout_s": 0.1}]},
            "The step 'test' was stopped: timeout_s is 0.1.",
        ),
        (
            {"steps": [{"name": "test", "run": "sleep 600"}], "timeout_s": 0.1},
            "The step 'test' was stopped: timeout_s is 0.1.",
        ),
    ],
)
async def test_the_log_of_a_step_that_fails_without_output_ends_with_the_reason(
    board: Board, start: Start, given: dict[str, Any], last: str
) -> None:
    job = board.pin("interlock.shell", given)
    start()
    await ended(board, job)
    assert steps_told(job)[-1] == last


# What a step starts ends with it


async def test_a_daemon_does_not_outlive_its_step(
    board: Board, start: Start, tmp_path: Path, daemon: str
) -> None:
    job = board.pin("interlock.shell", {"run": f"{daemon}; {until_there(tmp_path / 'daemon')}"})
    start()
    await ended(board, job)
    assert job.state == "succeeded"
    assert gone(int((tmp_path / "daemon").read_text()))


async def test_a_daemon_that_forgets_its_environment_is_killed_by_a_cancel(
    board: Board, start: Start, tmp_path: Path, daemon: str
) -> None:
    script = f"env -i {daemon}; {until_there(tmp_path / 'daemon')}; echo up; trap '' TERM; sleep 600"
    job = board.pin("interlock.shell", {"run": script})
    start(stop_grace_s=0.1)
    await board.until(lambda: "up" in job.lines, "the step to run")
    board.cancel(job)
    await board.until_state(job, "canceled")
    assert gone(int((tmp_path / "daemon").read_text()))
    assert [ack.confirmed_dead for ack in board.said(CancelAck)] == [True]


async def test_a_process_that_kills_the_warden_is_found_by_its_mark(
    board: Board, start: Start, tmp_path: Path, daemon: str
) -> None:
    script = f"{daemon}; {until_there(tmp_path / 'daemon')}; kill -KILL $PPID; sleep 600"
    job = board.pin("interlock.shell", {"run": script})
    start()
    await ended(board, job)
    assert "was killed by SIGKILL" in job.failure.error
    await board.until(lambda: gone(int((tmp_path / "daemon").read_text())), "it to be gone")
    *shell, last, _ = job.lines  # a shell may still tell that what it ran was killed
    assert (set(shell) - {"Killed"}, last) == (
        set(), "Some processes that this step has started may still run.",
    )  # fmt: skip


async def test_a_process_that_stops_the_warden_is_found_by_its_mark_and_nothing_is_confirmed(
    board: Board, start: Start, tmp_path: Path, daemon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "CLEAR_UP_S", 0.3)
    script = f"{daemon}; {until_there(tmp_path / 'daemon')}; kill -STOP $PPID; echo up; sleep 600"
    job = board.pin("interlock.shell", {"run": script})
    start(stop_grace_s=0.1)
    await board.until(lambda: "up" in job.lines, "the warden to be stopped")
    board.cancel(job)
    await board.until_state(job, "canceled")
    await board.until(lambda: gone(int((tmp_path / "daemon").read_text())), "it to be gone")
    assert [ack.confirmed_dead for ack in board.said(CancelAck)] == [False]


async def test_a_cancel_is_not_confirmed_dead_when_a_process_could_not_be_killed(
    board: Board, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warden that has found somebody whom it cannot kill, such as one of another user."""
    warden = tmp_path / "warden.py"
    warden.write_text(
        "import os, sys\n"
        "while os.read(0, 4096)[-1:] not in (b'T', b'K'): os.write(1, b'up\\n')\n"
        'os.write(int(sys.argv[1]), b\'{"code": -15, "killed": 2, "left": [4711]}\')\n'
    )
    monkeypatch.setattr(groups, "WARDEN", str(warden))
    job = board.pin("interlock.shell", {"run": "never read"})
    start()
    await board.until(lambda: "up" in job.lines, "the step to run")
    board.cancel(job)
    await board.until_state(job, "canceled")
    assert [ack.confirmed_dead for ack in board.said(CancelAck)] == [False]


async def test_nothing_outlives_a_worker_that_is_killed(tmp_path: Path, daemon: str) -> None:
    program = f"""
import asyncio
from interlock.processes.groups import Group
async def work():
    group = await Group.start(["sh", "-c", {daemon + "; sleep 600"!r}], print)
    await group.ended()
asyncio.run(work())
"""
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    note = tmp_path / "daemon"
    await until(note.exists, "there is a daemon")
    worker.send_signal(signal.SIGKILL)
    await worker.wait()
    await until(lambda: gone(int(note.read_text())), "the daemon is gone")


# What a step is given


async def test_a_shell_step_inherits_the_environment_of_the_worker_except_its_token(
    board: Board, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_TOKEN", "hush")
    monkeypatch.setenv("PLAIN", "seen")
    job = board.pin("interlock.shell", {"run": "env"})
    start()
    await ended(board, job)
    assert "PLAIN=seen" in job.lines
    assert f"INTERLOCK_JOB_ID={job.id}" in job.lines
    assert "INTERLOCK_ATTEMPT=1" in job.lines
    assert not any("hush" in line for line in job.lines)


async def test_steps_have_variables_and_folders_of_their_own(
    board: Board, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "inner").mkdir()
    steps = [
        {"run": "echo $A $B; pwd", "env": {"B": "own"}, "workdir": "inner"},
        {"run": "echo $A $B; pwd"},
    ]
    given = {"steps": steps, "env": {"A": "all", "B": "all"}, "workdir": str(tmp_path)}
    job = board.pin("interlock.shell", given)
    start()
    await ended(board, job)
    assert written(job) == ["all own", f"{tmp_path}/inner", "all all", str(tmp_path)]


async def test_a_step_that_may_fail_does_not_end_the_job(board: Board, start: Start) -> None:
    steps = [
        {"name": "lint", "run": "exit 3", "continue_on_error": True},
        {"name": "slow", "run": "sleep 600", "timeout_s": 0.1, "continue_on_error": True},
        {"name": "test", "run": "echo on"},
    ]
    job = board.pin("interlock.shell", {"steps": steps})
    start()
    await ended(board, job)
    assert job.state == "succeeded"
    exit_codes = [(step["name"], step.get("exit_code", 0)) for step in job.result["steps"]]
    assert exit_codes == [("lint", 3), ("slow", None), ("test", 0)]
    assert written(job) == ["on"]


async def test_a_step_with_a_timeout_of_its_own_is_stopped_and_named(board: Board, start: Start) -> None:
    steps = [{"run": "true"}, {"name": "slow", "run": "echo begun; sleep 600", "timeout_s": 0.2}]
    job = board.pin("interlock.shell", {"steps": steps, "timeout_s": 60})
    start()
    await ended(board, job)
    assert job.failure.error == "The step 'slow' was stopped: timeout_s is 0.2."
    assert job.failure.failure_class == "timeout"


async def test_a_step_in_a_missing_folder_fails_with_an_error_that_names_the_folder(
    board: Board, start: Start
) -> None:
    job = board.pin("interlock.shell", {"run": "pwd", "workdir": "/no/such/place"})
    start()
    await ended(board, job)
    assert job.failure.error == "The step 'pwd' cannot start: No such file or directory: /no/such/place"


@pytest.mark.parametrize(
    ("run", "code", "words"),
    [
        ("kill -9 $$", -9, "was killed by SIGKILL"),
        ("sh -c 'kill -SEGV $$'; exit $?", 139, "ended with exit code 139 (SIGSEGV)"),
    ],
)
async def test_a_signal_that_ends_a_step_is_named(
    board: Board, start: Start, run: str, code: int, words: str
) -> None:
    job = board.pin("interlock.shell", {"run": run})
    start()
    await ended(board, job)
    assert job.failure.exit_code == code
    assert job.failure.error == f"The step {run!r} {words}."
