"""The harness itself: it has to see every sort of change, and its benches have to try every guard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

from interlock.lifecycles import JOB, MACHINES
from interlock.machine import Machine, Row
from interlock.machine.table import Act

JOB_TRANSITIONS = {
    ("SUBMITTED", "validate"): {"PENDING"},
    ("SUBMITTED", "reject"): {"FAILED"},
    ("SUBMITTED", "cancel"): {"CANCELED"},
    ("PENDING", "allocate_resources"): {"RUNNING"},
    ("PENDING", "cancel"): {"CANCELED"},
    ("PENDING", "expire"): {"FAILED"},
    ("RUNNING", "success"): {"COMPLETED"},
    ("RUNNING", "error"): {"FAILED"},
    ("RUNNING", "cancel"): {"CANCELED"},
    ("RUNNING", "timeout"): {"CANCELED"},
}
JOB_WRITTEN: dict[str, Any] = {
    "initial": "SUBMITTED",
    "terminal": {"COMPLETED", "FAILED", "CANCELED"},
    "transitions": JOB_TRANSITIONS,
    "stays": {("RUNNING", "cancel"), ("RUNNING", "timeout")},
}


def changed_job(change: Callable[[Row[Any, Any]], Row[Any, Any] | None], *more: Row[Any, Any]) -> Any:
    """A copy of the job's machine whose rows were changed, left out or added to."""
    rows = [new for row in JOB.table.rows if (new := change(row)) is not None]
    table = JOB.table
    return Machine(
        "job", table.doc, initial=table.initial, states=table.states, rows=[*more, *rows], stop=table.stop
    )


def is_row(row: Row[Any, Any], source: str, event: str) -> bool:
    return row.event.name == event and source in row.sources and row.act is Act.MOVE


def test_an_unchanged_copy_shows_no_difference(
    bench: Callable[[str], Any], differences_of: Callable[..., tuple[str, ...]]
) -> None:
    copy = replace(bench("job"), machine=changed_job(lambda row: row))
    assert differences_of(copy, **JOB_WRITTEN) == ()


def test_a_row_that_is_missing_is_reported(
    bench: Callable[[str], Any], differences_of: Callable[..., tuple[str, ...]]
) -> None:
    shorter = changed_job(lambda row: None if is_row(row, "SUBMITTED", "reject") else row)
    found = differences_of(replace(bench("job"), machine=shorter), **JOB_WRITTEN)
    assert len(found) == 1
    assert "reject" in found[0]


def test_a_row_that_was_added_is_reported(
    bench: Callable[[str], Any], differences_of: Callable[..., tuple[str, ...]]
) -> None:
    validate = JOB.event("validate")
    again: Row[Any, Any] = Row(Act.MOVE, validate, (JOB.state("RUNNING"),), "?", JOB.state("PENDING"), "test")
    found = differences_of(replace(bench("job"), machine=changed_job(lambda row: row, again)), **JOB_WRITTEN)
    assert [sentence for sentence in found if "('RUNNING', 'validate')" in sentence] == list(found)
    assert len(found) == 2


def test_a_row_that_leads_elsewhere_is_reported(
    bench: Callable[[str], Any], differences_of: Callable[..., tuple[str, ...]]
) -> None:
    elsewhere = changed_job(
        lambda row: replace(row, target=JOB.state("FAILED")) if is_row(row, "RUNNING", "timeout") else row
    )
    found = differences_of(replace(bench("job"), machine=elsewhere), **JOB_WRITTEN)
    assert all("('RUNNING', 'timeout')" in sentence for sentence in found)
    assert "CANCELED" in found[0]
    assert "FAILED" in found[0]


def test_a_pair_that_was_written_down_wrongly_is_reported(
    differences: Callable[..., tuple[str, ...]],
) -> None:
    written = {**JOB_WRITTEN, "transitions": {**JOB_TRANSITIONS, ("RUNNING", "explode"): {"FAILED"}}}
    (found,) = differences("job", **written)
    assert "explode" in found


def test_a_wrong_beginning_or_end_is_reported(differences: Callable[..., tuple[str, ...]]) -> None:
    assert len(differences("job", **{**JOB_WRITTEN, "initial": "PENDING"})) == 1
    assert len(differences("job", **{**JOB_WRITTEN, "terminal": {"COMPLETED"}})) == 1


def test_there_is_a_bench_for_every_machine(bench: Callable[[str], Any]) -> None:
    assert [bench(name).machine for name in MACHINES] == list(MACHINES.values())


def test_the_bench_satisfies_and_violates_every_guard(each_bench: Any) -> None:
    for row in each_bench.machine.table.rows:
        for guard in row.when:
            answers = {
                guard(data, occurrence)
                for data, occurrence in product(each_bench.datas, each_bench.occurrences(row.event))
            }
            assert answers == {True, False}, f"{guard.__name__} is never { ({True, False} - answers) }"


def test_the_bench_puts_every_pair_to_decide(each_bench: Any) -> None:
    machine = each_bench.machine
    for state, event in product(machine.states, machine.events):
        assert list(each_bench.decisions(state, event)), f"nothing tries {event.name} in {state}"
