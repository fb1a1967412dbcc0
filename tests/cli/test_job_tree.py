"""`interlock job tree`: a job and everything below it, for people, for pipes and for programs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from tests.cli.shop import RunCli, Shop
from tests.cli.test_looking_at_jobs import column, on_a_terminal

from interlock.cli.nouns.job_watch import lines_of, tree_of
from interlock.wire.jobs import TreeNode
from interlock.wire.runner import Complete, Succeeded

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def family(shop: Shop) -> tuple[str, str, str]:
    """A parent at work, one child that is done and one that waits."""
    parent = shop.submit("shop_tasks.whole", queue="ci")
    shop.take(parent)
    done = shop.submit("shop_tasks.part", parent_job_id=parent)
    shop.take(done)
    shop.say(done, Complete, outcome=Succeeded(), cost=0.25)
    return parent, done, shop.submit("shop_tasks.part", parent_job_id=parent, queue="mail")


def test_a_pipe_gets_a_line_for_each_job_from_top_to_bottom(cli: RunCli, shop: Shop) -> None:
    parent, done, waiting = family(shop)
    answer = cli("job", "tree", parent)
    assert answer.returncode == 0
    assert column(answer.stdout, 0) == [parent, done, waiting]
    assert column(answer.stdout, 1) == ["0", "1", "1"]
    assert column(answer.stdout, 3) == ["RUNNING", "COMPLETED", "PENDING"]
    assert column(answer.stdout, 8) == ["0.25", "0.25", ""]


def test_a_program_gets_all_of_it(cli: RunCli, shop: Shop) -> None:
    parent, done, waiting = family(shop)
    tree = json.loads(cli("job", "tree", parent[2:], "--json").stdout)
    assert [node["id"] for node in tree["nodes"]] == [parent, done, waiting]
    assert tree["states"] == {"RUNNING": 1, "COMPLETED": 1, "PENDING": 1}


def test_a_terminal_shows_it_drawn(shop: Shop) -> None:
    parent, done, waiting = family(shop)
    written = on_a_terminal(shop, "job", "tree", parent, "--once", NO_COLOR="1")
    lines = written.splitlines()
    assert lines[0].startswith(f"{parent} shop_tasks.whole RUNNING")
    assert lines[1].startswith(f"├─ {done} shop_tasks.part COMPLETED")
    assert lines[2].startswith(f"└─ {waiting} shop_tasks.part PENDING")
    assert lines[3] == "3 jobs: 1 COMPLETED, 1 PENDING, 1 RUNNING; cost 0.25"


def test_a_tree_that_has_ended_is_drawn_live_and_left_at_once(shop: Shop) -> None:
    parent = shop.submit("shop_tasks.whole")
    shop.take(parent)
    shop.say(parent, Complete, outcome=Succeeded())
    assert "COMPLETED" in on_a_terminal(shop, "job", "tree", parent, NO_COLOR="1")


def test_a_truncated_tree_prints_a_hint_to_raise_the_limit(cli: RunCli, shop: Shop) -> None:
    parent, _, _ = family(shop)
    answer = cli("job", "tree", parent, "--limit", "2")
    assert len(answer.stdout.splitlines()) == 2
    assert "The tree has more jobs: --limit 4" in answer.stderr


def test_a_job_that_is_not_there_is_reported_as_everywhere(cli: RunCli, shop: Shop) -> None:
    shop.submit()
    answer = cli("job", "tree", "j_000000000000")
    assert answer.returncode != 0
    assert "There is no job" in answer.stderr
    assert "Traceback" not in answer.stderr


def node(number: int, depth: int, state: str = "RUNNING") -> TreeNode:
    at = NOW + timedelta(seconds=number)
    return TreeNode(id=f"j_{number}", task="t", state=state, queue="q", depth=depth, created_at=at)


def test_branches_are_drawn_to_where_they_belong() -> None:
    tree = tree_of([node(1, 0), node(2, 1), node(3, 2), node(4, 3), node(5, 2), node(6, 1), node(7, 2)])
    drawn = [f"{ahead}{what.id}" for ahead, what in lines_of(tree, None) if isinstance(what, TreeNode)]
    assert drawn == [
        "j_1",
        "├─ j_2",
        "│  ├─ j_3",
        "│  │  └─ j_4",
        "│  └─ j_5",
        "└─ j_6",
        "   └─ j_7",
    ]


def test_job_tree_shows_running_children_and_counts_the_ended_ones_when_there_are_many() -> None:
    ended = [node(number, 1, "COMPLETED") for number in range(2, 32)]
    living = [node(number, 1) for number in range(32, 35)]
    drawn = list(lines_of(tree_of([node(1, 0), *ended, *living]), 20))
    assert [what.id for _, what in drawn if isinstance(what, TreeNode)] == ["j_1", "j_32", "j_33", "j_34"]
    assert drawn[-1] == ("└─ ", "30 more: 30 COMPLETED")
