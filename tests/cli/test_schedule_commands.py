"""`interlock schedule …`: what is printed, for people and for programs, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.shop import RunCli, Shop

from interlock.cli import project
from interlock.errors import InvalidSettings

NIGHTLY = ("schedule", "create", "nightly", "shop_tasks:add", "x=1")
CRON = ("--cron", "0 2 * * 1-5", "--tz", "Europe/Berlin")


def test_a_schedule_from_its_creation_to_its_end(cli: RunCli, shop: Shop) -> None:
    made = cli(*NIGHTLY, *CRON)
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("nightly: every weekday at 02:00 in Berlin; next in ")
    (listed,) = [line.split("\t") for line in cli("schedule", "list").stdout.splitlines()]
    assert (listed[:3], listed[4]) == (
        ["nightly", "active", "every weekday at 02:00 in Berlin"],
        "shop_tasks.add",
    )
    paused = cli("schedule", "pause", "nightly", "--reason", "stocktaking").stdout
    assert paused == "nightly: every weekday at 02:00 in Berlin; paused (stocktaking)\n"
    job_id = cli("schedule", "run", "nightly").stdout.strip()
    assert json.loads(cli("job", "show", job_id, "--json").stdout)["schedule"] == "nightly"
    shown = json.loads(cli("schedule", "show", "nightly", "--json").stdout)
    assert (shown["state"], shown["recent"][0]["job_id"], shown["spec"]["job"]["input"]) == (
        "paused",
        job_id,
        {"x": 1},
    )
    assert (
        f"job\t{shown['recent'][0]['scheduled_for']}\t{job_id}" in cli("schedule", "show", "nightly").stdout
    )
    assert "next in" in cli("schedule", "resume", "nightly").stdout
    assert cli("schedule", "delete", "nightly").stdout.endswith("; ended\n")
    events = [line.split("\t")[1] for line in cli("schedule", "history", "nightly").stdout.splitlines()]
    assert events == ["created", "pause", "run_now", "resume", "delete"]
    assert "There is no schedule." in cli("schedule", "list").stderr


def test_next_and_backfill_print_fire_times(cli: RunCli, shop: Shop) -> None:
    cli(*NIGHTLY, "--every", "12h", "--overlap", "allow")
    times = cli("schedule", "next", "nightly", "--count", "3").stdout.splitlines()
    assert len(times) == 3
    assert all(line.split("\t")[0].endswith(":00:00Z") for line in times)
    days = ("--since", "2026-01-01", "--until", "2026-01-02")
    foreseen = cli("schedule", "backfill", "nightly", *days, "--dry-run")
    assert foreseen.stdout.splitlines() == ["2026-01-01T00:00:00Z", "2026-01-01T12:00:00Z"]
    assert foreseen.stderr == "2 fire times would get a job.\n"
    done = cli("schedule", "backfill", "nightly", *days)
    assert [line.split("\t")[1] for line in done.stdout.splitlines()] == [
        "2026-01-01T00:00:00Z",
        "2026-01-01T12:00:00Z",
    ]
    again = cli("schedule", "backfill", "nightly", *days)
    assert (again.stdout, again.stderr) == ("", "2 fire times had a job already.\n")


def test_schedule_commands_exit_with_code_2_and_the_reason_for_invalid_arguments(
    cli: RunCli, shop: Shop
) -> None:
    wrong = cli(*NIGHTLY, "--cron", "0 25 * * *")
    assert (wrong.returncode, "not a cron expression" in wrong.stderr) == (2, True)
    neither = cli(*NIGHTLY)
    assert (neither.returncode, "one of cron, every and at" in neither.stderr) == (2, True)
    arguments = cli("schedule", "create", "nightly", "shop_tasks:add", "y=1", *CRON)
    assert (arguments.returncode, "x" in arguments.stderr) == (2, True)
    cli(*NIGHTLY, *CRON)
    taken = cli(*NIGHTLY, *CRON)
    assert (taken.returncode, "--update" in taken.stderr) == (2, True)
    assert cli(*NIGHTLY, "--every", "1h", "--update").stdout.startswith("nightly: every hour; next in ")
    unknown = cli("schedule", "show", "nobody")
    assert (unknown.returncode, "interlock schedule list" in unknown.stderr) == (2, True)


FILE = """
store = "sqlite:///shop.db"

[schedules.nightly]
cron = "0 2 * * *"
start = 2026-01-01
at = []
task = "shop_tasks.add"
input = { x = 1 }
queue = "mail"
"""


def test_the_project_file_declares_schedules(tmp_path: Path) -> None:
    (tmp_path / "interlock.toml").write_text(FILE, encoding="utf-8")
    (name, declared) = next(iter(project.load(start=tmp_path).schedules.items()))
    assert (name, declared.source, declared.spec.start) == ("nightly", "interlock.toml", "2026-01-01")
    assert (declared.spec.job.queue, bytes(declared.spec.job.input)) == ("mail", b'{"x":1}')


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('evry = "1h"', "there is no schedules.nightly.evry, did you mean schedules.nightly.every"),
        ('tz = "Europe/Berlim"', "There is no time zone 'Europe/Berlim'. Did you mean Europe/Berlin?"),
        ("priority = []", "schedules.nightly: The schedule does not fit: job.priority: expected int"),
    ],
)
def test_a_schedule_that_cannot_be_makes_the_file_unusable(tmp_path: Path, line: str, says: str) -> None:
    (tmp_path / "interlock.toml").write_text(f"{FILE}{line}\n", encoding="utf-8")
    with pytest.raises(InvalidSettings) as refused:
        project.load(start=tmp_path)
    assert says in refused.value.sentence


def test_declared_schedules_are_applied_from_code_and_file(cli: RunCli, shop: Shop, folder: Path) -> None:
    module = (folder / "shop_tasks.py").read_text(encoding="utf-8")
    more = '\n@task(every="15m")\ndef poll() -> None: ...\n'
    (folder / "shop_tasks.py").write_text(module + more, encoding="utf-8")
    applied = cli("schedule", "apply", "shop_tasks")
    assert applied.returncode == 0, applied.stderr
    assert "shop_tasks.poll: every 15 minutes; next in " in applied.stdout
    (view,) = json.loads(cli("schedule", "apply", "shop_tasks", "--json").stdout)
    assert (view["version"], view["source"]) == (1, "code")
