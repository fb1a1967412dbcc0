"""What the journal tells about recovery: how long it took, and which deaths say nothing about it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from chaos.system.chronicle import Chronicle, Try
from chaos.system.judging import SERVER_BOUND_S, WORKER_BOUND_S, Recovery, recoveries
from chaos.system.troubles import Death, Ledger

from interlock.engine.audit import Audit

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PEOPLE = {"left": ("left", "carl")}


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def death(name: str = "anna", *, serves: bool = False, at: float = 0.0) -> Death:
    runner_id = "" if serves else f"{name}#1"
    return Death(name=name, runner_id=runner_id, serves=serves, before=after(at), after=after(at + 0.01))


def ledger(*deaths: Death, disturbed: tuple[float, float] | None = None) -> Ledger:
    disturbances = [(after(disturbed[0]), after(disturbed[1]))] if disturbed else []
    return Ledger(deaths=list(deaths), disturbances=disturbances, over_at=after(60))


def chronicle(*tries: Try, heard: dict[str, list[datetime]] | None = None) -> Chronicle:
    made = Chronicle(audit=Audit(), tries={(one.job_id, one.name): one for one in tries})
    for one in tries:
        made.by_job[one.job_id].append(one)
    made.moments.update(heard or {})
    return made


def lost_and_given_again(again_s: float) -> Chronicle:
    lost = Try("j1", "1.1", "anna#1", after(-1), ended_at=after(again_s - 0.1), state="STALE")
    return chronicle(lost, Try("j1", "1.2", "bela#1", after(again_s)))


def seconds_of(recovery: Recovery) -> list[float | None]:
    return [None if seconds is None else round(seconds, 3) for seconds in recovery.seconds]


def test_a_worker_is_recovered_from_when_its_work_is_in_other_hands() -> None:
    workers, _ = recoveries(lost_and_given_again(2.5), ledger(death()), PEOPLE)
    assert seconds_of(workers) == [2.5]
    assert list(workers.sentences()) == []


def test_work_that_is_given_out_again_too_late_is_a_broken_promise() -> None:
    workers, _ = recoveries(lost_and_given_again(WORKER_BOUND_S + 1), ledger(death()), PEOPLE)
    assert "s to recover from the death of a worker" in next(workers.sentences())


def test_work_that_nobody_takes_again_is_a_broken_promise() -> None:
    lost = Try("j1", "1.1", "anna#1", after(-1), ended_at=after(2), state="STALE")
    workers, _ = recoveries(chronicle(lost), ledger(death()), PEOPLE)
    assert "never" in next(workers.sentences())


def test_what_a_worker_had_ended_before_it_died_needs_no_recovery() -> None:
    done = Try("j1", "1.1", "anna#1", after(-1), ended_at=after(-0.5), state="SUCCEEDED")
    workers, _ = recoveries(chronicle(done), ledger(death()), PEOPLE)
    assert workers.seconds == []


@pytest.mark.parametrize(("heard_s", "broken"), [(3.0, 0), (SERVER_BOUND_S + 1, 1)])
def test_a_server_is_recovered_from_when_those_who_have_no_other_are_heard_again(
    heard_s: float, broken: int
) -> None:
    heard = {"left": [after(-1), after(heard_s + 1)], "carl": [after(-2), after(heard_s)]}
    _, servers = recoveries(chronicle(heard=heard), ledger(death("left", serves=True)), PEOPLE)
    assert seconds_of(servers) == [heard_s]
    assert len(list(servers.sentences())) == broken


def test_a_death_beside_which_something_else_goes_on_is_not_judged() -> None:
    found = ledger(death(), death("left", serves=True), disturbed=(1, 2))
    workers, servers = recoveries(lost_and_given_again(9), found, PEOPLE)
    assert (workers.seconds, servers.seconds) == ([], [])
    assert (workers.not_judged, servers.not_judged) == (1, 1)


def test_a_server_that_is_killed_again_at_once_is_judged_by_its_last_death() -> None:
    deaths = (death("left", serves=True), death("left", serves=True, at=2))
    _, servers = recoveries(chronicle(heard={"carl": [after(4)]}), ledger(*deaths), PEOPLE)
    assert seconds_of(servers) == [2.0]
    assert servers.not_judged == 1
