"""The filter grammar of runs: what it means, that it reads back, and what wrong words are told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from interlock.errors import BadFilter
from interlock.wire.filters import read_run_filter, run_id_of
from interlock.wire.runs import RunView

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
ONE = "r_0123456789ab"


def a_run(**facts: Any) -> RunView:
    known: dict[str, Any] = {"id": ONE, "state": "REPORTED", "version": 1, "workflow": "ci"}
    known |= {"created_at": NOW, "updated_at": NOW, "outcome": "FAILED", "labels": ("nightly",)}
    return RunView(**{**known, **facts})


def test_filter_terms_that_the_store_supports_become_part_of_the_store_query() -> None:
    wanted = read_run_filter(
        "state:running workflow:ci repository:shop/web branch:main sha:5f1c label:a group:g since:1h "
        f"origin:{ONE}"
    )
    query = wanted.query(NOW)
    assert wanted.exact
    assert (query.states, query.workflow, query.repository) == (("RUNNING",), "ci", "shop/web")
    assert (query.ref, query.sha, query.labels) == ("refs/heads/main", "5f1c", ("a",))
    assert (query.concurrency_group, query.origin_run_id) == ("g", ONE)
    assert query.since == NOW - timedelta(hours=1)


def test_a_reported_run_is_found_by_its_outcome() -> None:
    wanted = read_run_filter("outcome:failed,timeout")
    assert not wanted.exact
    assert wanted.keeps(a_run())
    assert not wanted.keeps(a_run(outcome="SUCCESS"))
    assert not wanted.keeps(a_run(outcome=None))


@pytest.mark.parametrize("text", ["tag:v1", "ref:refs/tags/v1"])
def test_a_tag_is_a_ref(text: str) -> None:
    assert read_run_filter(text).ref == "refs/tags/v1"


@pytest.mark.parametrize(
    "text",
    [
        "state:running,queued",
        "-state:reported outcome:failed",
        "workflow:ci ref:refs/heads/main label:a label:b,c",
        f"id:{ONE} since:2026-01-31T00:00:00Z until:10m",
        'workflow:"two words" group:g',
    ],
)
def test_every_run_filter_reads_back_as_the_same_filter(text: str) -> None:
    wanted = read_run_filter(text)
    assert read_run_filter(str(wanted)) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("state:runing", "There is no state 'runing'"),
        ("outcome:running", "RUNNING is not an outcome"),
        ("branch:a tag:b", "names several refs"),
        ("workflow:a,b", "workflow takes one value"),
        ("id:r_12", "is not the id of a run"),
        ("queue:ci", "there is no key 'queue'"),
        ("state:running -state:running", "leaves no state that a run could be in"),
    ],
)
def test_an_invalid_run_filter_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(BadFilter) as refused:
        read_run_filter(text)
    assert message in refused.value.sentence


def test_the_same_runs_but_only_in_some_states() -> None:
    wanted = read_run_filter("state:running,reported").among(["REPORTED", "FAILED"])
    assert wanted.wanted_states == ("REPORTED",)


def test_beginnings_of_ids() -> None:
    assert run_id_of("0A4e") == run_id_of("r_0a4e") == "r_0a4e"
    assert run_id_of("j_0a4e") is None
