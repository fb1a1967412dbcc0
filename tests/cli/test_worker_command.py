"""`interlock worker start`: a real worker process that does what `interlock submit` has asked for."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import msgspec
import pytest
from tests.cli.shop import RunCli, Shop
from tests.waiting import PROGRAM_S

from interlock.cli.nouns.worker_start import WorkerOptions, settings_for
from interlock.cli.project import Project, WorkerSection
from interlock.systems.settings import DEFAULT_SETTINGS

ORDERS = Path(__file__).parents[2] / "examples" / "orders.py"


def test_a_burst_does_all_there_is_and_ends(cli: RunCli, program: RunCli, shop: Shop) -> None:
    done = cli("submit", "shop_tasks:add", "x=3").stdout.strip()
    failed = cli("submit", "shop_tasks:fail").stdout.strip()
    shell = cli("submit", "--shell", "echo hello; echo oops >&2").stdout.strip()
    elsewhere = cli("submit", "anything", "--unchecked", "--queue", "elsewhere").stdout.strip()
    worker = program("worker", "start", "shop_tasks", "--burst", "--name", "till")
    assert worker.returncode == 0, worker.stderr
    answer = cli("job", "wait", done, failed, shell)
    assert answer.returncode == 3
    assert json.loads(cli("job", "show", done, "--json").stdout)["result"] == 4
    assert "user: ValueError: out of stock" in cli("job", "explain", failed).stdout
    assert sorted(cli("job", "logs", shell, "--plain").stdout.split()) == ["hello", "oops"]
    assert shop.job(elsewhere).state == "PENDING"
    lease = shop.job(done).attempts[0].lease
    assert lease is not None
    assert lease.runner_id.startswith("till#")


def test_a_worker_in_burst_mode_waits_for_pending_retries_before_it_exits(
    program: RunCli, shop: Shop
) -> None:
    (shop.folder / "flaky_tasks.py").write_text(
        "from interlock.worker.tasks import task\n"
        "class FlakyError(Exception): ...\n"
        "@task(retries=0)\n"
        "def flaky() -> int:\n"
        "    from pathlib import Path\n"
        "    if not Path('tried').exists():\n"
        "        Path('tried').touch()\n"
        "        raise FlakyError('try again')\n"
        "    return 1\n"
    )
    job_id = shop.submit("flaky_tasks.flaky", input=msgspec.Raw(b"{}"))
    assert program("worker", "start", "flaky_tasks.py", "--burst").returncode == 0
    assert [attempt.state for attempt in shop.job(job_id).attempts] == ["FAILED", "SUCCEEDED"]


FAMILY = """
from interlock import Context, task

@task
async def part(number: int) -> int:
    return number

@task
async def whole(ctx: Context) -> int:
    await ctx.submit_many([part.spec(number) for number in (1, 2, 3)], child_name="parts")
    return sum(child.result(int) for child in await ctx.wait_children())
"""


def test_a_burst_does_jobs_that_submit_jobs(program: RunCli, shop: Shop) -> None:
    (shop.folder / "family.py").write_text(FAMILY)
    job_id = shop.submit("family.whole", input=msgspec.Raw(b"{}"))
    # With one place no child can end before its parent waits for it, so the parent needs a second attempt.
    assert program("worker", "start", "family.py", "--burst", "--slots", "1").returncode == 0
    whole = shop.job(job_id)
    assert (whole.state, whole.result, len(whole.attempts)) == ("COMPLETED", msgspec.Raw(b"6"), 2)


def test_a_burst_saves_caches_and_finds_them_again(cli: RunCli, program: RunCli, shop: Shop) -> None:
    given = {"run": "cat lib/a; mkdir -p lib; echo kept > lib/a", "caches": [{"key": "k", "path": "lib"}]}
    for _ in range(2):
        job_id = shop.submit("interlock.shell", input=msgspec.Raw(msgspec.json.encode(given)))
        assert program("worker", "start", "--shell", "--burst").returncode == 0
    assert "kept" in cli("job", "logs", job_id, "--plain").stdout


def test_a_burst_executes_simulations(program: RunCli, shop: Shop) -> None:
    (shop.folder / "walk.py").write_text(
        "from interlock import simulation\n"
        "@simulation(total_steps=3)\n"
        "def walk(state: int | None) -> int:\n"
        "    return (state or 0) + 1\n"
    )
    assert program("simulation", "start", "walk.py", "--id", "walk-1").returncode == 0
    assert program("worker", "start", "walk.py", "--burst").returncode == 0
    shown = json.loads(program("simulation", "show", "walk-1", "--json").stdout)["simulation"]
    assert (shown["status"], shown["current_step"]) == ("completed", 3)


def test_timers_of_declared_kinds_fire_in_a_burst(cli: RunCli, program: RunCli, shop: Shop) -> None:
    shutil.copy(ORDERS, shop.folder / "orders_for_burst.py")
    (shop.folder / "interlock.toml").write_text('kinds = ["orders_for_burst"]\n', encoding="utf-8")
    assert cli("record", "create", "order", "customer=ada", "amount=40", "--id", "o-1").returncode == 0
    shop.later(30 * 86_400)
    assert program("worker", "start", "shop_tasks", "--burst").returncode == 0
    assert json.loads(cli("record", "get", "order", "o-1", "--json").stdout)["state"] == "expired"


def test_a_burst_ends_although_a_task_in_a_thread_took_too_long(program: RunCli, shop: Shop) -> None:
    (shop.folder / "slow.py").write_text(
        "import threading\n"
        "from interlock import task\n"
        "@task(timeout_s=0.5, retries=0)\n"
        "def slow() -> None:\n"
        "    threading.Event().wait()\n"
    )
    job_id = shop.submit("slow.slow", input=msgspec.Raw(b"{}"), timeout_s=0.5, retries=0)
    program("worker", "start", "slow.py", "--burst")
    assert shop.job(job_id).state == "FAILED"


def test_a_worker_executes_jobs_until_sigterm_and_exits_with_code_0(cli: RunCli, shop: Shop) -> None:
    process = shop.start("worker", "start", "shop_tasks", "--queue", "mail", "--queue", "default")
    try:
        job_id = shop.submit("shop_tasks.send", queue="mail", input=msgspec.Raw(b'{"address":"a"}'))
        assert cli("job", "wait", job_id).stdout.startswith(f"{job_id}\tCOMPLETED")
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=PROGRAM_S)
        assert process.returncode == 0, stderr
    finally:
        process.kill()
        process.communicate(timeout=PROGRAM_S)


def test_the_module_and_the_queues_may_come_from_the_project_file(
    cli: RunCli, program: RunCli, shop: Shop
) -> None:
    (shop.folder / "interlock.toml").write_text(
        '[worker]\nmodule = "shop_tasks"\nqueues = ["mail"]\n', encoding="utf-8"
    )
    job_id = cli("submit", "send", "address=a").stdout.strip()
    assert shop.job(job_id).task == "shop_tasks.send"
    assert program("worker", "start", "--burst").returncode == 0
    assert shop.job(job_id).state == "COMPLETED"


def test_the_command_line_takes_precedence_over_the_project_file() -> None:
    section = WorkerSection(name="till", queues=("mail",), slots=3, log_level="debug", executor="process")
    here = Project(url="memory:", settings=DEFAULT_SETTINGS, worker=section)
    settings = settings_for(here, WorkerOptions(queues=("ci",), prefetch=0, executor="thread"))
    assert (settings.name, settings.queues, settings.concurrency) == ("till", ("ci",), 3)
    assert (settings.log_level, settings.prefetch) == ("debug", 0)
    assert settings_for(here, WorkerOptions(slots=7, name="other")).concurrency == 7
    assert (settings.executor, settings_for(here, WorkerOptions()).executor) == ("thread", "process")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "No task module given."),
        (["nowhere"], "Cannot load nowhere: there is no module nowhere"),
        (["doors"], "there are no tasks in it"),
        (["broken"], "it raises ZeroDivisionError: division by zero"),
        (["missing.py"], "there is no such file"),
        (["shop_tasks", "--slots", "0"], "concurrency is 0 and must be at least 1"),
        (["shop_tasks", "--log-level", "loud"], "log_level is 'loud' and must be one of debug, info,"),
        (
            ["shop_tasks", "--executor", "green"],
            "executor is 'green' and must be one of async, thread, process",
        ),
        (["shop_tasks", "--name", "a#b"], "name is 'a#b' and must be a word without '#'"),
        (["shop_tasks", "--store", "mysql://there/it"], "is not the URL of a store"),
    ],
)
def test_a_worker_that_cannot_start_prints_the_reason_without_a_traceback(
    cli: RunCli, shop: Shop, words: list[str], says: str
) -> None:
    answer = cli("worker", "start", *words)
    assert answer.returncode == 2, answer.stderr
    assert says in answer.stderr
    assert "Traceback" not in answer.stderr
