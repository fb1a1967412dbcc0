"""Every line of a `sh` block is run, here or by another test, or is named below with the reason why not.

The options of other programs are compared with what these print for `--help`, where they are installed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from docs import transcripts
from tests import programs
from tests.docs.test_every_block import FOR_CONTRIBUTORS, PAGES, blocks_of
from tests.waiting import PROGRAM_S

ROOT = Path(__file__).parents[2]

HERE = (
    "chmod 600",
    "df -h",
    "echo",
    "export",
    "interlock config set",
    "interlock config use",
    "interlock db audit",
    "interlock db status",
    "interlock dead-letter list",
    "interlock dead-letter show ID",
    "interlock job explain ID",
    "interlock job list state:",
    "interlock job logs ID",
    "interlock limit list",
    "interlock queue list",
    "interlock token create ann --role admin",
    "interlock worker history NAME",
    "interlock worker list",
    "interlock worker quarantined",
    "openssl rand -hex 32 > token",
    "sed -i",
)
"""Beginnings of lines that are run below, in a folder with a failed job and the files that pages name."""
ELSEWHERE = {
    ". .venv/bin/activate": "tests/release/test_installs.py",
    "createdb --host db": "tests/deploy/test_drills.py",
    "curl ": "tests/docs/test_other_blocks.py",  # compared with the API, by its description
    "dropdb --host db": "tests/deploy/test_drills.py",
    "interlock agent --host 0.0.0.0": "tests/deploy/test_systemd.py",
    "interlock agent --port 716": "tests/docs/test_load_test_page.py",
    "interlock approval approve": "tests/cli/test_approval_commands.py",
    "interlock approval reject": "tests/cli/test_approval_commands.py",
    "interlock db audit --store": "tests/deploy/test_drills.py",
    "interlock db restored --store": "tests/deploy/test_drills.py",
    "interlock db status --store": "tests/deploy/test_drills.py",
    "interlock dev kitchen.py": "tests/docs/test_dev_page.py",
    "interlock dev shop.py --open": "tests/cli/test_dev.py",
    "interlock doctor": "tests/cli/test_doctor.py",
    "interlock job cancel state:pending,running": "tests/docs/test_dev_page.py",
    "interlock job list --server": "tests/docs/test_dev_page.py",
    "interlock job list state:canceled": "tests/docs/test_dev_page.py",
    "interlock job wait queue:default": "tests/docs/test_dev_page.py",
    "interlock runner-check": "tests/testing/test_runner_kit.py",
    "interlock server --allow-host": "tests/server/test_program.py",
    "interlock server --kinds": "tests/cli/test_record_commands.py",
    "interlock server --repository": "tests/server/test_program.py",
    "interlock submit kitchen:": "tests/docs/test_dev_page.py",
    "interlock top": "tests/cli/test_top.py",
    "interlock workload run homepage.yml": "tests/docs/test_load_test_page.py",
    "interlock workload run load.yml": "tests/docs/test_fleet_page.py",
    "pg_dump --format=custom": "tests/deploy/test_drills.py",
    "pg_restore --no-owner": "tests/deploy/test_drills.py",
    "pip install .": "tests/release/test_installs.py",
    "podman build": "tests/deploy/test_image.py",  # by Buildah
    "python -m http.server": "tests/docs/test_load_test_page.py",
    "python manage.py interlock": "tests/integrations/test_django.py",
    "python3 -m venv .venv": "tests/release/test_installs.py",
}
"""Beginnings of lines that another test runs, or compares, and where."""
NOT_RUN = {
    "/opt/interlock/bin/pip install": "installs for the whole machine",
    "docker compose": "needs Docker, and a registry with the image of PostgreSQL",
    "install ": "writes below /etc and /var, as users that there are not",
    "interlock --profile prod": "needs the server that the page invents: tests/cli/test_profiles.py",
    "interlock agent": "runs until it is stopped: tests/agent/test_program.py",
    "interlock server --host 0.0.0.0": "needs a certificate and a database: tests/server/test_program.py",
    "interlock server --token-required": "runs until it is stopped: tests/server/test_cross_origin.py",
    "interlock token create prometheus": "needs the database that the page invents",
    "interlock worker start": "runs until it is stopped: tests/cli/test_worker_command.py",
    "journalctl": "needs a journal",
    "kubectl": "needs a cluster",
    "pip install 'interlock[": "there is no release on PyPI: tests/release/test_extras.py has the extras",
    "python3 -m venv /opt": "installs for the whole machine",
    "systemctl": "needs systemd as the first process",
    "systemd-run": "needs systemd as the first process",
    "useradd": "adds a user to the machine",
}
"""Beginnings of lines that no test runs, and why."""
OPTIONS = {
    "chmod": "",
    "createdb": "--host",
    "curl": "--header --include --json --request --silent",
    "df": "-h",
    "docker compose exec": "",
    "docker compose up": "--build --wait",
    "dropdb": "--host",
    "install": "-d -g -m -o",
    "journalctl": "--grep --since -k -n -o -p -u",
    "kubectl apply": "--filename",
    "kubectl create secret generic": "--from-literal",
    "kubectl exec": "",
    "openssl rand": "-hex",
    "pg_dump": "--file --format",
    "pg_restore": "--dbname --no-owner",
    "podman build": "--file --format --tag",
    "sed": "-i",
    "systemctl daemon-reload": "",
    "systemctl edit": "",
    "systemctl enable": "--now",
    "systemctl start": "",
    "systemctl status": "",
    "systemctl stop": "",
    "systemd-run": "--pipe --uid --wait -p",
    "useradd": "--home-dir --shell --system",
}
"""Commands of other programs on the pages, and their options; a short one that has a long form is that."""
LONG = {
    "curl": {"-H": "--header", "-X": "--request", "-i": "--include", "-s": "--silent"},
    "docker compose": {"-f": "--file"},
    "kubectl": {"-f": "--filename"},
    "podman": {"-f": "--file", "-t": "--tag"},
}
BEFORE_THE_VERB = {"docker compose": ("--file",)}
"""Options with a value that come before the verb."""
OURS = ("interlock", "python", "python3", "pip", ".", "export", "echo")
"""Programs whose options other tests read, and words of the shell."""


class Line(NamedTuple):
    """A command of a page, as it is typed, without its comment."""

    page: str
    text: str


def commands_of(block: str) -> Iterator[str]:
    """Yield the commands of a script, one by one: a line may have several."""
    for line in block.replace("\\\n", " ").splitlines():
        words = re.sub(r"(^|\s+)#\s.*$", "", line).strip()
        yield from (
            re.sub(r"^(\w+=\S+ +)+|\s*[&]$", "", part.strip())
            for part in re.split(r"&&|\|\||;|\|", words)
            if part.strip() not in ("", "true")
        )


def lines() -> list[Line]:
    """Return the commands of all pages for users."""
    return [
        Line(page.name, command)
        for page in PAGES
        if page not in FOR_CONTRIBUTORS
        for block in blocks_of(page)
        if block.language == "sh"
        for command in commands_of(block.text)
    ]


def kind_of(text: str) -> str:
    """Return which list names a command, by the longest beginning; the session of its verb; or nothing."""
    beginnings = [each for each in (*HERE, *ELSEWHERE, *NOT_RUN) if text.startswith(each)]
    if beginnings:
        return max(beginnings, key=len)
    words = tuple(text.split()[1:3])
    return "a session" if text.startswith("interlock ") and words in recorded() else ""


def recorded() -> set[tuple[str, ...]]:
    """Return noun and verb of each command whose session is replayed by test_sessions."""
    return {tuple(session.words.split()[:2]) for session in transcripts.sessions()}


def test_every_command_of_a_page_is_run_or_there_is_a_reason() -> None:
    found = lines()
    assert len(found) > 130
    assert [line for line in found if not kind_of(line.text)] == [], "→ Name them in HERE, or why not"
    named = {kind_of(line.text) for line in found} - {"a session"}
    assert named == {*HERE, *ELSEWHERE, *NOT_RUN}, "what is named above is on a page"
    assert len(named) == len(HERE) + len(ELSEWHERE) + len(NOT_RUN)


def test_every_test_that_is_named_above_exists() -> None:
    tests = {*ELSEWHERE.values()}
    tests |= {f"tests/{found}" for why in NOT_RUN.values() for found in re.findall(r"tests/(\S+\.py)", why)}
    assert {test for test in tests if not (ROOT / test).is_file()} == set()


@pytest.mark.parametrize(
    "text", ["interlock job erase ID", "psql -c 'SELECT 1'", "interlock supervise", "rm -r .interlock"]
)
def test_a_command_that_nothing_runs_is_noticed(text: str) -> None:
    assert kind_of(text) == ""


# What is run here


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Return a folder in which a worker has failed a job."""
    return Place(tmp_path_factory.mktemp("place"))


class Place:
    """A folder with a store, a failed job, a worker, and the files that the pages name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "deploy").mkdir()
        (folder / "token.txt").write_text("il_a_b\n", encoding="utf-8")
        (folder / ".prod-token").write_text("il_a_b\n", encoding="utf-8")
        for each in ("token.txt", ".prod-token"):
            (folder / each).chmod(0o600)
        shutil.copy(ROOT / "deploy/prometheus/alerts.yaml", folder)
        source = "from interlock import task\n\n\n@task\ndef fail() -> None:\n    raise ValueError('no')\n"
        (folder / "shop.py").write_text(source, encoding="utf-8")
        self.job = self.run("interlock submit shop.py:fail").strip()
        self.run("interlock worker start shop.py --burst --name packer")

    def run(self, command: str) -> str:
        """Return what a command prints that succeeds."""
        command = re.sub(r"\bID$", getattr(self, "job", ""), command)
        command = re.sub(r"\bNAME$", "packer", command)
        profiles = "with-profiles" if command.startswith("interlock config") else "without"
        environment = {
            **os.environ,
            "XDG_CONFIG_HOME": str(self.folder / profiles),
            "INTERLOCK_URL": "",
            "NO_COLOR": "1",
        }
        if command.startswith("interlock "):
            words = [re.sub("^~", str(self.folder), word) for word in shlex.split(command)[1:]]
            done = programs.run(*words, folder=self.folder, environment=environment)
        else:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", command],
                cwd=self.folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=PROGRAM_S,
                check=False,
            )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return str(done.stdout)


def to_run() -> list[Line]:
    seen = {line.text: line for line in reversed(lines()) if kind_of(line.text) in HERE}
    return [*reversed(seen.values())]


def test_the_commands_that_need_no_server_succeed_where_a_job_has_failed(place: Place) -> None:
    for line in to_run():
        place.run(line.text)
    assert (place.folder / "deploy" / ".env").stat().st_mode & 0o777 == 0o600
    assert re.fullmatch("POSTGRES_PASSWORD=[0-9a-f]{32}\n", (place.folder / "deploy" / ".env").read_text())
    assert re.fullmatch("[0-9a-f]{64}\n", (place.folder / "token").read_text())
    alerts = (place.folder / "alerts.yaml").read_text(encoding="utf-8")
    assert "https://docs.your-company.example/" in alerts
    assert "https://docs.example.org" not in alerts


def test_a_command_that_fails_is_noticed(place: Place) -> None:
    with pytest.raises(AssertionError, match="There is no job"):
        place.run("interlock job logs j_000000000000")


# Options of other programs


def other(text: str) -> tuple[str, list[str]] | None:
    """Return the command of another program on a page, with its verbs, and its options; None for ours."""
    program, *words = shlex.split(text.partition(" > ")[0])
    program = program.rpartition("/")[2]
    if program in OURS:
        return None
    group = next((name for name in LONG if f"{program} {words[0]}".startswith(name)), "")
    long = LONG.get(group, {})
    verbs = [each for each in OPTIONS if each.split()[0] == program]
    (name,) = [each for each in verbs if {*each.split()[1:]} <= {*words}]
    own = words[: words.index("--")] if "--" in words else words
    if name == "docker compose exec":
        own = own[: own.index("exec")]  # the rest is a command for the service
    options = [long.get(word, word).partition("=")[0] for word in own if re.match("--?[a-z]", word, re.I)]
    if name == "systemd-run":
        options = options[: options.index("-p") + 1]  # the rest is a command of ours
    return name, [each for each in options if each not in BEFORE_THE_VERB.get(group, ())]


def test_the_options_of_other_programs_on_the_pages_are_those_above() -> None:
    used: dict[str, set[str]] = {}
    for line in lines():
        if found := other(line.text):
            used.setdefault(found[0], set()).update(found[1])
    assert {name: " ".join(sorted(options)) for name, options in used.items()} == OPTIONS


def help_of(command: str) -> str:
    """Return what a program prints about a command; empty where the program or its plugin is missing."""
    program, *verbs = command.split()
    if shutil.which(program) is None:
        return ""
    asked = [program, "--help", "all"] if program == "curl" else [program, *verbs, "--help"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    printed = done.stdout + done.stderr
    return printed if program != "docker" or command in printed else ""


def unknown(command: str, printed: str) -> list[str]:
    """Return the options of a command, and verbs of systemctl, that its help does not have."""
    words = OPTIONS[command].split()
    words += command.split()[1:] if command.startswith("systemctl ") else []
    return [word for word in words if not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", printed)]


@pytest.mark.parametrize("command", [each for each in OPTIONS if shutil.which(each.split()[0])])
def test_a_program_that_is_installed_has_the_options(command: str) -> None:
    printed = help_of(command)
    assert not printed or unknown(command, printed) == []


def test_an_option_that_a_program_does_not_have_is_noticed() -> None:
    assert unknown("df", "Usage: df [OPTION]...\n  --human-readable, --help") == ["-h"]
    assert unknown("systemctl enable", "  reenable UNIT\n  --no-wall --now") == ["enable"]
