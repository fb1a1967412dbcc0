"""Shell completion: what is offered after TAB, and the script that a real bash runs for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.shop import TASKS, RunCli, Shop
from tests.effort import further
from tests.tidy.test_nouns_of_the_command_line import commands_by_noun
from tests.waiting import PROGRAM_S

from interlock.cli import completion, help_pages
from interlock.cli.forms import RecordsCommand
from interlock.wire.workers import WorkerSpec

Tab = Callable[[str], list[str]]


@pytest.fixture
def tab(cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> Tab:
    """What bash is offered for a line that ends where the cursor is."""

    def press(line: str) -> list[str]:
        monkeypatch.setenv(help_pages.COMPLETES, "complete_bash")
        monkeypatch.setenv("_INTERLOCK_LINE", line)
        answer = cli()
        assert (answer.returncode, answer.stderr) == (0, "")
        return answer.stdout.split()

    return press


@pytest.mark.usefixtures("folder")
def test_nouns_verbs_options_and_machines_are_offered(tab: Tab) -> None:
    assert {"job", "doctor", "completion"} <= {*tab("interlock ")}
    assert tab("interlock job sh") == ["show"]
    assert "--json" in tab("interlock job list --")
    assert tab("interlock machine show wor") == ["worker", "workload"]


def test_ids_names_of_queues_and_tasks_come_from_the_store(tab: Tab, shop: Shop) -> None:
    job_id = shop.submit("shop_tasks.send", queue="mail")
    assert tab("interlock job show j_") == [job_id]
    assert tab("interlock queue pause ") == ["mail"]
    assert tab("interlock worker start --queue m") == ["mail"]
    assert tab("interlock job list task:shop") == ["task:shop_tasks.send"]
    assert tab("interlock job list queue:") == ["queue:mail"]
    assert tab(f"interlock job cancel {job_id} j") == [job_id]


@pytest.mark.usefixtures("folder")
def test_a_filter_is_offered_its_keys_and_then_its_states(tab: Tab) -> None:
    assert tab("interlock job list s") == ["state:", "since:"]
    assert tab("interlock job list state:fa") == ["state:failed"]
    assert tab("interlock job list queue:ci state:failed,ca") == ["state:failed,canceled"]
    assert tab("interlock run list outcome:suc") == ["outcome:success"]
    assert tab("interlock worker list state:term") == ["state:terminated"]


def test_a_negated_filter_is_offered_its_keys_and_values_as_well(tab: Tab, shop: Shop) -> None:
    shop.submit(queue="mail")
    assert tab("interlock job list -sta") == ["-state:"]
    assert tab("interlock job list -state:fa") == ["-state:failed"]
    assert tab("interlock job list -state:failed,ca") == ["-state:failed,canceled"]
    assert tab("interlock job list state:failed -queue:") == ["-queue:mail"]
    assert tab("interlock job cancel -state:compl") == ["-state:completed"]
    assert {"-state:", "-o"} <= {*tab("interlock job list -")}
    assert "-state:" not in tab("interlock job list --")


@pytest.mark.usefixtures("folder")
def test_formats_are_offered_after_o_and_output(tab: Tab) -> None:
    assert tab("interlock job list -o ") == ["table", "wide", "json", "jsonl", "yaml", "template="]
    assert tab("interlock job list -o js") == ["json", "jsonl"]
    assert tab("interlock job show j_1 --output y") == ["yaml"]
    assert tab("interlock job list --output=te") == ["template="]
    assert tab("interlock job list -o template={") == []


@pytest.mark.usefixtures("folder")
def test_columns_are_offered_also_after_a_comma_and_each_once(tab: Tab) -> None:
    columns = ["id", "state", "task", "queue", "submitted", "took", "message"]
    assert tab("interlock job list --columns ") == columns
    assert tab("interlock job list --columns s") == ["state", "submitted"]
    assert tab("interlock job list --columns id,s") == ["id,state", "id,submitted"]
    assert tab("interlock job list --columns state,id,s") == ["state,id,submitted"]
    assert tab("interlock job history j_1 --columns ow") == ["owner"]
    assert tab("interlock schedule history nightly --columns b") == ["by"]
    assert tab("interlock job explain j_1 --columns d") == ["deadline"]
    assert tab("interlock job show j_1 --columns ") == []


@pytest.mark.usefixtures("folder")
def test_columns_to_sort_by_are_offered_also_in_descending_order(tab: Tab) -> None:
    assert tab("interlock job list --sort t") == ["task", "took"]
    assert tab("interlock job list --sort -t") == ["-task", "-took"]
    assert tab("interlock job list --sort -") == [
        *("-id", "-state", "-task", "-queue", "-submitted", "-took", "-message")
    ]
    assert tab("interlock job list --sort queue,-t") == ["queue,-task", "queue,-took"]
    assert tab("interlock job list --sort -queue,t") == ["-queue,task", "-queue,took"]
    assert tab("interlock machine list --sort -na") == ["-name"]
    assert "--columns" in tab("interlock job list --sort --")
    assert "-state:" in tab("interlock job list --sort id -")


@pytest.mark.usefixtures("folder")
def test_a_column_whose_name_has_a_space_is_offered_as_one_value(tab: Tab) -> None:
    assert tab("interlock queue list --columns 'old") == []
    assert tab("interlock queue list --columns oldest\\ pen") == ["oldest", "pending"]
    assert tab("interlock queue list --columns name,oldest\\ pending,st")[-1] == "pending,state"


LISTS = sorted(
    (noun, verb)
    for noun, verbs in commands_by_noun().items()
    for verb, command in verbs.items()
    if isinstance(command, RecordsCommand) and verb != "show"
)


@pytest.mark.parametrize(("noun", "verb"), LISTS)
def test_every_command_with_a_table_offers_its_columns(noun: str, verb: str) -> None:
    assert len(completion._columns_of(noun, verb)) > 3


@pytest.mark.parametrize("noun", ["config", "job", "limit", "machine", "queue", "token", "worker"])
def test_the_offered_columns_of_a_list_are_those_of_its_table(
    noun: str, cli: RunCli, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(shop.folder))
    shop.submit(queue="mail")
    shop.do(_registered)
    for words in (
        ("config", "set", "here", shop.url),
        ("limit", "set", "vendor-x", "--max", "1"),
        ("token", "create", "ci", "--role", "viewer"),
    ):
        assert cli(*words).returncode == 0
    columns = [each for each in completion._columns_of(noun, "list") if (noun, each) != ("job", "took")]
    answer = cli(noun, "list", "--columns", ",".join(columns))  # in a pipe, a job has other times
    assert answer.returncode == 0, answer.stderr
    assert len(answer.stdout.splitlines()[0].split("\t")) == len(columns)


async def _registered(port: Any) -> None:
    await port.services.workers.register(WorkerSpec(name="web-1", queues=("default",), capacity=4))


def test_submit_and_schedule_create_are_offered_tasks_of_the_project_without_importing_them(
    tab: Tab, folder: Path
) -> None:
    talks = "raise SystemExit('imported')\nfrom interlock import task\n"
    (folder / "interlock.toml").write_text('store = "sqlite:///jobs.db"\n[worker]\nmodule = "mails"\n')
    (folder / "mails").mkdir()
    (folder / "mails" / "__init__.py").write_text(f"{talks}@task\ndef send(): ...\n")
    (folder / "mails" / "later.py").write_text(f"{talks}@task(queue='mail')\nasync def remind(): ...\n")
    (folder / "mails" / "broken.py").write_text("@task\ndef (")
    (folder / "stock.py").write_text(f'{talks}@task\ndef count(): "\\d"\ndef helper(): ...\n')
    assert tab("interlock submit ma") == ["mails:send", "mails.later:remind"]
    assert tab("interlock submit stock") == ["stock:count"]
    assert tab("interlock submit mails:") == ["mails:send"]
    assert tab("interlock schedule create nightly mails.") == ["mails.later:remind"]
    assert tab("interlock submit --from mails re") == ["remind"]


def test_submit_is_offered_tasks_of_recent_jobs_once_and_limits_that_a_job_can_name(
    tab: Tab, cli: RunCli, shop: Shop
) -> None:
    shop.submit("shop_tasks.send")
    shop.submit("elsewhere.report")
    for limit in ("vendor-x", "tenant:*", "queue:mail"):
        assert cli("limit", "set", limit, "--max", "1").returncode == 0
    assert tab("interlock submit e") == ["elsewhere.report"]
    assert tab("interlock submit shop_tasks:s") == ["shop_tasks:send"]
    assert tab("interlock submit shop_tasks.s") == ["shop_tasks.send"]
    assert tab("interlock submit shop_tasks") == ["shop_tasks:add", "shop_tasks:send", "shop_tasks:fail"]
    assert tab("interlock submit elsewhere.report --limit ") == ["vendor-x"]
    assert tab("interlock schedule create nightly el") == ["elsewhere.report"]


def test_a_project_file_that_cannot_be_read_offers_no_tasks_and_prints_nothing(
    tab: Tab, folder: Path
) -> None:
    (folder / "interlock.toml").write_text("store = [")
    assert tab("interlock submit ") == []
    assert tab("interlock submit --from nowhere ") == []
    assert tab("interlock submit x --limit ") == []


@pytest.mark.parametrize("noun", sorted(completion._LOOKS))
def test_completion_of_every_noun_returns_no_records_from_an_empty_store(noun: str, shop: Shop) -> None:
    look: Any = completion._LOOKS[noun]  # a store of its own is what it is given everywhere
    assert list(shop.do(look)) == []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "sqlite:////nowhere/jobs.db", "nonsense"])
def test_a_store_that_does_not_answer_offers_nothing_and_prints_nothing(
    tab: Tab, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_URL", url)
    assert tab("interlock job show j") == []


@pytest.mark.parametrize("line", ['interlock job list "state:fa', "interlock job list 'sta"])
@pytest.mark.usefixtures("folder")
def test_a_quote_that_is_still_open_is_no_error(tab: Tab, line: str) -> None:
    assert tab(line) in ([], ["state:failed"], ["state:"])


TRY = """
source <(interlock completion bash)
COMP_LINE=$1 COMP_POINT=${#1}
_interlock_completion interlock
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("interlock job list state:failed,comp", ["failed,completed"]),
        ("interlock submit shop", ["shop_tasks:add", "shop_tasks:send", "shop_tasks:fail"]),
        ("interlock schedule create nightly shop_tasks:s", ["send"]),
        ("interlock queue list --columns name,old", ["name,oldest\\", "pending"]),
        *further(
            ("interlock job li", ["list"]),
            ("interlock job list -state:comp", ["completed"]),
            ("interlock submit shop_tasks:a", ["add"]),
            ("interlock job list -o ya", ["yaml"]),
            ("interlock job list --columns id,qu", ["id,queue"]),
            ("interlock job list --sort -subm", ["-submitted"]),
        ),
    ],
)
def test_bash_completes_command_names_tasks_and_filter_values_after_a_colon(
    line: str, offered: list[str], tmp_path: Path
) -> None:
    (tmp_path / "shop_tasks.py").write_text(TASKS)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    answer = subprocess.run(
        ["bash", "--norc", "-c", TRY, "bash", line],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "INTERLOCK_URL": ""},
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=True,
    )
    assert answer.stdout.split() == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_zsh_and_fish_scripts_use_the_same_completion_variable(cli: RunCli, shell: str) -> None:
    answer = cli("completion", shell)
    assert answer.returncode == 0
    assert f"{help_pages.COMPLETES}=complete_{shell}" in answer.stdout


def test_a_shell_that_is_not_known_is_refused(cli: RunCli) -> None:
    answer = cli("completion", "tcsh")
    assert answer.returncode == 2
    assert "'bash', 'zsh', 'fish'" in answer.stderr
