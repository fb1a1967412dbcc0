"""What the journal tells about recovery: how long it took, and which deaths say nothing about it."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest

from interlock.engine.audit import Audit
from interlock_verification.chaos.system.fault_injector import FaultLog, KillWindow
from interlock_verification.chaos.system.history import JobHistory, Try
from interlock_verification.chaos.system.judge import (
    SERVER_BOUND_S,
    WORKER_BOUND_S,
    Recovery,
    Took,
    recoveries,
)
from interlock_verification.chaos.system.lag import DelaySample, Lag

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PEOPLE = {"left": ("left", "carl")}
Waited = list[tuple[float, int, float]]
"""When, which process, and what it had waited in all until then."""


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def death(name: str = "anna", *, serves: bool = False, at: float = 0.0) -> KillWindow:
    runner_id = "" if serves else f"{name}#1"
    return KillWindow(name=name, runner_id=runner_id, serves=serves, before=after(at), after=after(at + 0.01))


def fault_log(
    *deaths: KillWindow, disturbed: tuple[float, float] | None = None, waited: dict[str, Waited] | None = None
) -> FaultLog:
    disturbances = [(after(disturbed[0]), after(disturbed[1]))] if disturbed else []
    lag = Lag()
    for name, waits in (waited or {}).items():
        lag.readings[name] += [DelaySample(after(at), pid, waited_s) for at, pid, waited_s in waits]
    return FaultLog(deaths=list(deaths), disturbances=disturbances, over_at=after(60), lag=lag)


def history(*tries: Try, heard: dict[str, list[datetime]] | None = None) -> JobHistory:
    made = JobHistory(audit=Audit(), tries={(one.job_id, one.name): one for one in tries})
    for one in tries:
        made.by_job[one.job_id].append(one)
    made.moments.update(heard or {})
    return made


def lost_and_given_again(again_s: float) -> JobHistory:
    lost = Try("j1", "1.1", "anna#1", after(-1), ended_at=after(again_s - 0.1), state="STALE")
    return history(lost, Try("j1", "1.2", "bela#1", after(again_s)))


def seconds_of(recovery: Recovery) -> list[float | None]:
    return [None if took is None else round(took.seconds, 3) for took in recovery.took]


def test_a_worker_is_recovered_from_when_its_work_is_in_other_hands() -> None:
    workers, _ = recoveries(lost_and_given_again(2.5), fault_log(death()), PEOPLE)
    assert seconds_of(workers) == [2.5]
    assert list(workers.sentences()) == []


def test_work_that_is_given_out_again_too_late_is_a_broken_promise() -> None:
    workers, _ = recoveries(lost_and_given_again(WORKER_BOUND_S + 1), fault_log(death()), PEOPLE)
    assert "s to recover from the death of a worker" in next(workers.sentences())


def test_work_that_is_not_claimed_again_is_a_broken_promise() -> None:
    lost = Try("j1", "1.1", "anna#1", after(-1), ended_at=after(2), state="STALE")
    workers, _ = recoveries(history(lost), fault_log(death()), PEOPLE)
    assert "never" in next(workers.sentences())


def test_an_attempt_that_ended_before_its_worker_died_needs_no_recovery() -> None:
    done = Try("j1", "1.1", "anna#1", after(-1), ended_at=after(-0.5), state="SUCCEEDED")
    workers, _ = recoveries(history(done), fault_log(death()), PEOPLE)
    assert workers.took == []


@pytest.mark.parametrize(("heard_s", "broken"), [(3.0, 0), (SERVER_BOUND_S + 1, 1)])
def test_recovery_from_a_server_death_ends_when_a_worker_without_another_server_reports_again(
    heard_s: float, broken: int
) -> None:
    report_times = {"left": [after(-1), after(heard_s + 1)], "carl": [after(-2), after(heard_s)]}
    _, servers = recoveries(history(heard=report_times), fault_log(death("left", serves=True)), PEOPLE)
    assert seconds_of(servers) == [heard_s]
    assert len(list(servers.sentences())) == broken


def test_a_death_that_coincides_with_another_disturbance_is_not_judged() -> None:
    found = fault_log(death(), death("left", serves=True), disturbed=(1, 2))
    workers, servers = recoveries(lost_and_given_again(9), found, PEOPLE)
    assert (workers.took, servers.took) == ([], [])
    assert (workers.not_judged, servers.not_judged) == (1, 1)


def test_a_server_that_is_killed_again_at_once_is_judged_by_its_last_death() -> None:
    deaths = (death("left", serves=True), death("left", serves=True, at=2))
    _, servers = recoveries(history(heard={"carl": [after(4)]}), fault_log(*deaths), PEOPLE)
    assert seconds_of(servers) == [2.0]
    assert servers.not_judged == 1


def test_the_cpu_wait_of_a_restarted_server_is_subtracted_from_its_recovery_time() -> None:
    waited = {"left": [(-0.1, 1, 9.0), (0.2, 2, 0.1), (3.0, 2, 1.6), (6.9, 2, 2.5), (7.2, 2, 2.8)]}
    found = fault_log(death("left", serves=True), waited=waited)
    _, servers = recoveries(history(heard={"carl": [after(7)]}), found, PEOPLE)
    assert servers.took == [Took(found.deaths[0], 7.0, 2.4)]
    assert list(servers.sentences()) == []
    assert "7.00 s at most; 4.60 s at most without the time that the machine withheld" in servers.remark()
    assert "1 were longer by the clock" in servers.remark()


def test_too_late_is_too_late_when_the_machine_withheld_less_than_that() -> None:
    found = fault_log(death("left", serves=True), waited={"left": [(0.2, 2, 0.1), (6.9, 2, 1.9)]})
    _, servers = recoveries(history(heard={"carl": [after(7)]}), found, PEOPLE)
    [sentence] = servers.sentences()
    assert sentence.startswith(
        "it took 7.00 s to recover from the death of a server, of which the machine withheld 1.80"
    )


def test_worker_recovery_time_excludes_the_least_cpu_wait_of_any_member_since_the_leases_expired() -> None:
    waited: dict[str, Waited] = {
        "anna": [(0.5, 1, 1.0), (2.1, 1, 5.0), (3.0, 1, 6.0), (4.5, 1, 8.0)],
        "carl": [(2.1, 3, 0.5), (3.0, 3, 1.0), (3.5, 4, 0.25), (4.5, 4, 0.75)],
    }
    workers, _ = recoveries(lost_and_given_again(4.6), fault_log(death(), waited=waited), PEOPLE)
    assert workers.took == [Took(death(), 4.6, 1.25)]


def test_where_nothing_could_be_timed_the_bound_is_not_kept() -> None:
    workers, servers = recoveries(history(), fault_log(), PEOPLE)
    assert list(workers.sentences()) == ["no death of a worker could be timed"]
    assert list(servers.sentences()) == ["no death of a server could be timed"]


def test_the_scheduling_delay_is_read_for_live_processes_and_is_zero_for_ended_ones() -> None:
    gone = os.spawnlp(os.P_NOWAIT, "true", "true")
    os.waitpid(gone, 0)
    lag = Lag()
    lag.read(NOON, [("here", os.getpid()), ("gone", gone)])
    lag.read(after(1), [("here", os.getpid()), ("gone", gone)])
    assert set(lag.readings) == {"here"}
    assert lag.of("here", NOON, after(1)) >= 0
    assert lag.of("gone", NOON, after(1)) == 0
    assert f"of {os.cpu_count()} processors" in lag.remark()


def test_faults_that_follow_upon_each_other_are_one() -> None:
    found = fault_log()
    for begin, end in ((1, 2), (1.5, 3), (0.5, 2.5), (4, 5)):
        found.disturb(after(begin), after(end))
    assert found.disturbances == [(after(0.5), after(3)), (after(4), after(5))]
