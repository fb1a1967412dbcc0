"""A real worker: what handlers print and log can be read with `interlock job logs`."""

from __future__ import annotations

import msgspec
import pytest
from tests.cli.shop import RunCli, Shop

from interlock.cli.nouns.worker_start import WorkerOptions, settings_for
from interlock.cli.project import Project, WorkerSection
from interlock.errors import InvalidArguments, InvalidSettings
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.jobs import RetryRule
from interlock.worker.tasks import Registry

TALKATIVE = """
import logging
from interlock import task

log = logging.getLogger("talk")

def say(where):
    print("printed", where)
    log.info("logged %s", where)
    log.debug("noise")

@task
async def looped():
    say("looped")

@task
def threaded():
    say("threaded")

@task(executor="process")
def apart():
    say("apart")
"""


def test_job_logs_contains_the_printed_and_logged_lines_of_a_handler_in_every_executor(
    cli: RunCli, program: RunCli, shop: Shop
) -> None:
    (shop.folder / "talkative.py").write_text(TALKATIVE, encoding="utf-8")
    names = ("looped", "threaded", "apart")
    jobs = [shop.submit(f"talkative.{name}", input=msgspec.Raw(b"{}")) for name in names]
    worker = program("worker", "start", "talkative.py", "--burst")
    assert worker.returncode == 0, worker.stderr
    for name, job_id in zip(names, jobs, strict=True):
        assert shop.job(job_id).state == "COMPLETED"
        written = cli("job", "logs", job_id, "--plain").stdout.splitlines()
        assert sorted(written) == [f"printed {name}", f"talk: logged {name}"]


def test_capturing_can_be_turned_off(cli: RunCli, program: RunCli, shop: Shop) -> None:
    (shop.folder / "talkative.py").write_text(TALKATIVE, encoding="utf-8")
    (shop.folder / "interlock.toml").write_text('[worker]\njob_log_level = "off"\n', encoding="utf-8")
    job_id = shop.submit("talkative.threaded", input=msgspec.Raw(b"{}"))
    assert program("worker", "start", "talkative.py", "--burst").returncode == 0
    assert cli("job", "logs", job_id).stdout == ""


# Limits of memory


ONCE = {"infra": RetryRule(retries=0)}
GREEDY = """
from interlock import task

@task(executor="process", memory_limit_mb=400)
def limited(megabytes: int) -> int:
    return len(bytearray(megabytes * 1024 * 1024))
"""


def test_a_task_in_a_process_gets_no_more_memory_than_its_limit(program: RunCli, shop: Shop) -> None:
    (shop.folder / "greedy.py").write_text(GREEDY, encoding="utf-8")
    fits = shop.submit("greedy.limited", input=msgspec.Raw(b'{"megabytes": 1}'))
    greedy = shop.submit("greedy.limited", input=msgspec.Raw(b'{"megabytes": 800}'), retry=ONCE)
    assert program("worker", "start", "greedy.py", "--burst").returncode == 0
    assert shop.job(fits).state == "COMPLETED"
    failure = shop.job(greedy).failure
    assert failure is not None
    assert "MemoryError" in failure.error


def test_the_command_line_takes_precedence_over_the_project_file_in_limits_of_memory() -> None:
    here = Project(url="memory:", settings=DEFAULT_SETTINGS, worker=WorkerSection(memory_limit_mb=100))
    assert settings_for(here, WorkerOptions()).memory_limit_bytes == 100 * 1024 * 1024
    assert settings_for(here, WorkerOptions(memory_limit_mb=5)).memory_limit_bytes == 5 * 1024 * 1024
    with pytest.raises(InvalidSettings, match="memory_limit_bytes is 0 and must be at least 1"):
        settings_for(here, WorkerOptions(memory_limit_mb=0))


@pytest.mark.parametrize("limit", [0, -1, "1G"])
def test_a_limit_that_is_none_is_refused(limit: object) -> None:
    with pytest.raises(InvalidArguments, match="memory_limit_mb"):
        Registry().task(executor="process", memory_limit_mb=limit)(_nothing)  # type: ignore[call-overload]


def test_only_a_process_of_its_own_can_have_a_limit() -> None:
    with pytest.raises(InvalidArguments, match='executor="process"'):
        Registry().task(memory_limit_mb=100)(_nothing)


def _nothing() -> None: ...
