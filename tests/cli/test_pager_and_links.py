"""Long tables in a pager, and ids that link to the dashboard."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.cli.shop import Shop
from tests.cli.test_looking_at_jobs import at_a_keyboard, on_a_terminal
from tests.effort import further
from tests.server.running import program

from interlock.cli import hyperlinks

PAGER = """
import os, sys
open("paged.txt", "w").write(os.environ.get("LESS", "") + chr(10) + sys.stdin.read())
print("this was the pager")
"""


@pytest.fixture
def pager(shop: Shop) -> str:
    """A pager that leaves what it was given in `paged.txt`."""
    (shop.folder / "pager.py").write_text(PAGER, encoding="utf-8")
    return f"{sys.executable} pager.py"


@pytest.mark.parametrize("variables", [("INTERLOCK_PAGER",), ("PAGER",), ("INTERLOCK_PAGER", "PAGER")])
def test_a_table_longer_than_the_terminal_is_shown_in_the_pager(
    shop: Shop, pager: str, variables: tuple[str, ...]
) -> None:
    ids = shop.submit_many(20)
    given = {"PAGER": "false", "LINES": "10", **dict.fromkeys(variables, pager)}
    shown = at_a_keyboard(shop, "job", "list", **given)
    paged = (shop.folder / "paged.txt").read_text(encoding="utf-8")
    assert "this was the pager" in shown
    assert all(job_id in paged for job_id in ids)
    assert ids[-1] not in shown
    assert paged.startswith("FRX\n")
    assert "\x1b[" in paged  # colours, which less -R shows


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        (("--no-pager",), {}),
        (("--json",), {}),
        ((), {"LINES": "60"}),
        *further(
            (("-o", "yaml"), {}),
            ((), {"TERM": "dumb"}),
            ((), {"INTERLOCK_PAGER": ""}),
            ((), {"INTERLOCK_PAGER": "cat"}),
        ),
    ],
)
def test_no_pager_is_started_if_it_is_disabled_or_the_output_fits_or_is_not_a_table(
    shop: Shop, pager: str, words: tuple[str, ...], environment: dict[str, str]
) -> None:
    ids = shop.submit_many(20)
    given = {"INTERLOCK_PAGER": pager, "LINES": "10", **environment}
    shown = at_a_keyboard(shop, "job", "list", *words, **given)
    assert all(job_id in shown for job_id in ids)
    assert not (shop.folder / "paged.txt").exists()


@pytest.mark.parametrize("wanted", ["no-such-pager --quiet", "'unbalanced"])
def test_a_pager_that_cannot_be_started_is_reported_and_the_table_printed(shop: Shop, wanted: str) -> None:
    ids = shop.submit_many(20)
    shown = at_a_keyboard(shop, "job", "list", INTERLOCK_PAGER=wanted, LINES="10")
    assert all(job_id in shown for job_id in ids)
    assert "Set INTERLOCK_PAGER, or pass --no-pager." in " ".join(shown.split())


def test_a_pager_that_is_left_early_is_no_error(shop: Shop) -> None:
    shop.submit_many(500)
    given = {"INTERLOCK_PAGER": "true", "LINES": "10"}
    shown = at_a_keyboard(shop, "job", "list", "--limit", "500", **given)
    assert "Error" not in shown


def test_no_pager_waits_for_a_key_where_there_is_no_keyboard(shop: Shop, pager: str) -> None:
    ids = shop.submit_many(20)
    shown = on_a_terminal(shop, "job", "list", INTERLOCK_PAGER=pager, LINES="10")
    assert all(job_id in shown for job_id in ids)
    assert not (shop.folder / "paged.txt").exists()


def test_an_id_links_to_its_page_on_the_dashboard_of_the_server(shop: Shop, tmp_path: Path) -> None:
    with program("--store", shop.url, folder=tmp_path) as (_, url, _):
        job_id = shop.submit()
        link = f"{url}/jobs/{job_id}"
        given = {"INTERLOCK_URL": url, "FORCE_HYPERLINK": "1"}
        shown = on_a_terminal(shop, "job", "list", **given)
        assert f";{link}\x1b\\" in shown
        assert link not in on_a_terminal(shop, "job", "list", **given, NO_HYPERLINKS="1")
        assert f";{url}/queues/default\x1b\\" in on_a_terminal(shop, "queue", "list", **given)
    without = {"INTERLOCK_URL": shop.url, "FORCE_HYPERLINK": "1"}
    assert "\x1b]8;" not in on_a_terminal(shop, "job", "list", **without)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment of a terminal that says nothing about links."""
    for name in (
        *hyperlinks._VARIABLES,
        "NO_HYPERLINKS",
        "FORCE_HYPERLINK",
        "CI",
        "TERM_PROGRAM",
        "VTE_VERSION",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return monkeypatch


@pytest.mark.parametrize(
    ("environment", "supported"),
    [
        ({}, False),
        ({"VTE_VERSION": "6800"}, True),
        ({"VTE_VERSION": "4800"}, False),
        ({"VTE_VERSION": "nonsense"}, False),
        ({"TERM": "xterm-kitty"}, True),
        ({"TERM_PROGRAM": "iTerm.app"}, True),
        ({"TERM_PROGRAM": "Apple_Terminal"}, False),
        ({"WT_SESSION": "1"}, True),
        ({"WT_SESSION": "1", "CI": "true"}, False),
        ({"WT_SESSION": "1", "NO_HYPERLINKS": "1"}, False),
        ({"WT_SESSION": "1", "FORCE_HYPERLINK": "0"}, False),
        ({"FORCE_HYPERLINK": "1"}, True),
        ({"FORCE_HYPERLINK": "1", "NO_HYPERLINKS": "1"}, False),
        ({"TERM": "dumb", "WT_SESSION": "1"}, False),
    ],
)
def test_hyperlink_support_is_detected_from_environment_variables(
    bare: pytest.MonkeyPatch, environment: dict[str, str], supported: bool
) -> None:
    for name, value in environment.items():
        bare.setenv(name, value)
    assert hyperlinks.is_supported() is supported


@pytest.mark.parametrize(
    ("noun", "column", "cell", "page"),
    [
        ("job", "id", "j_0123456789ab", "jobs/j_0123456789ab"),
        ("artifact", "job id", "j_0123456789ab", "jobs/j_0123456789ab"),
        ("workload", "id", "j_0123456789ab", "workloads/j_0123456789ab"),
        ("schedule", "name", "every night", "schedules/every%20night"),
        ("worker", "name", "web-1", ""),
        ("job", "id", "", ""),
    ],
)
def test_a_cell_links_to_the_page_of_its_record(
    bare: pytest.MonkeyPatch, noun: str, column: str, cell: str, page: str
) -> None:
    bare.setenv("FORCE_HYPERLINK", "1")
    bare.setattr(hyperlinks, "server", "https://jobs.example.org")
    expected = f"https://jobs.example.org/{page}" if page else ""
    assert hyperlinks.link_of(noun, column, cell) == expected
