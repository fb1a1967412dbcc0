"""What the recorded sessions have shown: empty lists, counts of nothing, stray log lines, broken words."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from tests.cli.shop import RunCli, Shop

from interlock.cli.nouns.db import pruned_sheet
from interlock.cli.output import Sheet
from interlock.cli.tables import rendered

LISTS = {
    "job list": "No job matches.",
    "run list": "No run matches.",
    "simulation list": "No simulation matches.",
    "approval list": "No job waits for an approval.",
    "dead-letter list": "There is no dead letter.",
    "queue list": "No queue is paused or has unfinished jobs.",
    "limit list": "No limit is declared.",
    "batch list": "There is no batch.",
    "schedule list": "There is no schedule.",
    "worker list": "No live worker matches; see --all.",
    "worker quarantined": "No runner has lost work lately.",
    "workload list": "There is no workload.",
    "token list": "There is no active token; see --all.",
    "token list --all": "There is no token.",
}


@pytest.mark.parametrize("words", LISTS)
def test_an_empty_list_is_a_sentence(cli: RunCli, shop: Shop, words: str) -> None:
    answer = cli(*words.split())
    assert (answer.returncode, answer.stdout) == (0, "")
    assert answer.stderr.startswith(LISTS[words])


def test_an_empty_list_of_artifacts_is_a_sentence(cli: RunCli, shop: Shop) -> None:
    assert cli("job", "artifacts", shop.completed()).stderr == "It has stored no artifacts.\n"


def test_pruning_names_on_a_terminal_only_what_was_removed() -> None:
    counts = {
        "job": {"records": 2, "entries": 8, "requests": 0},
        "run": {"records": 0, "entries": 0, "requests": 0},
    }
    assert [row[0] for row in pruned_sheet(counts, terminal=True).rows] == ["job"]
    assert [row[0] for row in pruned_sheet(counts, terminal=False).rows] == ["job", "run"]


def test_pruning_nothing_is_a_sentence(cli: RunCli, shop: Shop) -> None:
    answer = cli("db", "prune", "--older-than", "30d")
    assert answer.stderr == "Nothing was removed: no record has ended more than 30d ago.\n"


def test_the_outcome_of_a_run_is_not_logged_where_a_command_prints_it(cli: RunCli, shop: Shop) -> None:
    (shop.folder / "ci.yml").write_text("jobs: {lint: {steps: [{run: make lint}]}}\n")
    run_id = cli("run", "submit", "--workflow", "ci.yml").stdout.strip()
    assert cli("run", "cancel", run_id).stderr == ""


def test_the_history_on_a_narrow_terminal_never_breaks_an_event() -> None:
    sheet = Sheet(
        "step",
        "",
        ("when", "what", "event", "from", "to", "actor", "reason"),
        [
            (
                "09:00:02",
                "job",
                "allocate_resources",
                "PENDING",
                "RUNNING",
                "ada (command line)",
                "a reason " * 5,
            )
        ],
    )
    console = Console(file=io.StringIO(), width=90, color_system=None, highlight=False)
    assert "allocate_resources" in rendered(sheet, console)
