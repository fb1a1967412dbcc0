"""How long things may last: the defaults of resolutions 34 and 52, and what settings may not say."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import floats

from interlock.errors import InvalidSettings
from interlock.lifecycles import MACHINES, Durations
from interlock.lifecycles.durations import DURATIONS
from interlock.lifecycles.job import START_WITHIN

DEFAULTS: dict[str, float] = {
    "lease_ttl_s": 120,  # R34
    "heartbeat_every_s": 20,  # R34
    "ack_window_s": 30,  # R34
    "cancel_deadline_s": 30,  # R34, R52
    "sweep_every_s": 5,  # R34
    "abort_warning_s": 5,  # S3-5, R38
    "abort_kill_s": 15,  # S3-5, R38, R52
    "shutdown_deadline_s": 30,  # S1-7, R52
    "error_unread_s": 5,  # ours, for S3-7
    "start_wait_s": 60,  # S3-1, R42
    "workload_duration_s": 3600,  # S3-1
    "simulation_stale_s": 30,  # S4-3, R46
    "simulation_silence_s": 60,  # S4-5, R46
}

# What must be less than what, and settings that break exactly this one rule, by a hair.
BROKEN: list[tuple[str, str, dict[str, float]]] = [
    ("abort_kill_s", "cancel_deadline_s", {"abort_kill_s": 30}),  # R52: 15 s < 30 s
    ("cancel_deadline_s", "shutdown_deadline_s", {"cancel_deadline_s": 30.1}),  # R52: 30 s ≤ 30 s
    ("shutdown_deadline_s", "lease_ttl_s", {"shutdown_deadline_s": 120}),  # R52: 30 s < 120 s
    ("lease_ttl_s", "heartbeat_every_s", {"heartbeat_every_s": 60}),  # R34: TTL > 2 x heartbeat
    ("abort_warning_s", "abort_kill_s", {"abort_warning_s": 15}),  # R38: warned before it is killed
    ("shutdown_soft_s", "shutdown_deadline_s", {"shutdown_soft_s": 30}),  # R13: soft before hard
    ("simulation_stale_s", "simulation_silence_s", {"simulation_stale_s": 60}),  # R46: 30 s, then 60 s
    ("worker_beat_every_s", "worker_silence_s", {"worker_beat_every_s": 120}),  # ours: one beat in time
    ("lease_ttl_s", "worker_silence_s", {"lease_ttl_s": 120.1}),  # ours: no two at one job
    ("ack_window_s", "lease_ttl_s", {"ack_window_s": 120.1}),  # ours: nobody waits longer for a yes
]


def faults_of(**changed: Any) -> list[str]:
    with pytest.raises(InvalidSettings) as caught:
        Durations(**changed)
    faults = caught.value.facts["faults"]
    assert isinstance(faults, list)
    assert all(fault in caught.value.sentence for fault in faults)
    return faults


@pytest.mark.parametrize(("setting", "seconds"), DEFAULTS.items())
def test_every_default_duration_has_its_specified_value(setting: str, seconds: float) -> None:
    assert getattr(Durations(), setting) == seconds


def test_the_defaults_nest() -> None:
    """R52, R34"""
    d = Durations()
    assert d.abort_kill_s < d.cancel_deadline_s <= d.shutdown_deadline_s < d.lease_ttl_s
    assert d.lease_ttl_s > 2 * d.heartbeat_every_s


@pytest.mark.parametrize(("small", "large", "changed"), BROKEN)
def test_a_contradiction_is_reported_and_names_both_settings(
    small: str, large: str, changed: dict[str, float]
) -> None:
    (fault,) = faults_of(**changed)
    assert small in fault
    assert large in fault


@pytest.mark.parametrize(("small", "large", "changed"), BROKEN)
def test_a_contradiction_that_is_avoided_by_a_hair_is_fine(
    small: str, large: str, changed: dict[str, float]
) -> None:
    for name, value in changed.items():
        assert getattr(Durations(**{name: value - 0.2}), name) == value - 0.2


def test_a_cancel_may_take_as_long_as_a_shutdown() -> None:
    """R52: at most, not less than."""
    assert Durations(cancel_deadline_s=29, shutdown_deadline_s=29).cancel_deadline_s == 29


def test_all_contradictions_are_reported_at_once() -> None:
    worst = {
        "lease_ttl_s": 1.0,
        "heartbeat_every_s": 1.0,
        "abort_warning_s": 99.0,
        "abort_kill_s": 98.0,
        "cancel_deadline_s": 97.0,
        "shutdown_deadline_s": 3.0,
        "shutdown_soft_s": 4.0,
        "simulation_stale_s": 61.0,
        "ack_window_s": 2.0,
        "worker_beat_every_s": 61.0,
        "worker_silence_s": 0.5,
        "sweep_every_s": 0.0,
    }
    faults = faults_of(**worst)
    for small, large, _ in BROKEN:
        assert any(small in fault and large in fault for fault in faults), f"{small} and {large} are missing"
    assert any(fault.startswith("sweep_every_s is 0") for fault in faults)
    assert len(faults) == len(BROKEN) + 1


@pytest.mark.parametrize("setting", Durations.__struct_fields__)
@pytest.mark.parametrize("nonsense", [0.0, -1.0, math.nan])
def test_a_duration_is_more_than_nothing(setting: str, nonsense: float) -> None:
    assert any(fault.startswith(f"{setting} is") for fault in faults_of(**{setting: nonsense}))


def test_every_duration_may_be_a_fraction_of_a_second() -> None:
    """R34: sub-second in tests."""
    tiny = {name: getattr(Durations(), name) / 1000 for name in Durations.__struct_fields__}
    quick = Durations(**tiny)
    assert quick.lease_ttl_s == pytest.approx(0.12)
    assert quick.heartbeat_every_s == pytest.approx(0.02)


def test_a_shutdown_asks_then_kills_then_closes_and_has_exited_by_its_deadline() -> None:
    """R13, S1-7"""
    times = Durations().shutdown()
    assert (times.shutdown_soft_s, times.shutdown_saving_s, times.shutdown_deadline_s) == (20, 26, 30)
    assert (times.last_acts_at_s, times.closing_s) == (27, 1)
    assert Durations().shutdown_saving_s == 26


@pytest.mark.parametrize(("deadline_s", "hard_s"), [(30, 4), (3, 3)])
def test_a_hurried_shutdown_has_no_grace_period_and_four_seconds_at_most(
    deadline_s: float, hard_s: float
) -> None:
    brief = {"abort_warning_s": 0.5, "abort_kill_s": 1, "cancel_deadline_s": 2, "shutdown_soft_s": 1}
    times = Durations(shutdown_deadline_s=deadline_s, **brief).shutdown(hurried=True)
    assert (times.shutdown_soft_s, times.shutdown_deadline_s) == (0, hard_s)
    assert times.shutdown_saving_s == pytest.approx(0.6 * hard_s)
    assert times.last_acts_at_s == pytest.approx(0.85 * hard_s)


@pytest.mark.parametrize("hurried", [True, False])
@given(soft_s=floats(0.001, 1e6), longer=floats(1.001, 1e3))
def test_the_parts_of_a_shutdown_follow_one_another(hurried: bool, soft_s: float, longer: float) -> None:
    ample = {"cancel_deadline_s": 1e-6, "abort_kill_s": 1e-7, "abort_warning_s": 1e-8, "lease_ttl_s": 1e12}
    durations = Durations(
        shutdown_soft_s=soft_s, shutdown_deadline_s=soft_s * longer, worker_silence_s=1e12, **ample
    )
    times = durations.shutdown(hurried=hurried)
    assert times.shutdown_soft_s < times.shutdown_saving_s < times.shutdown_deadline_s
    assert times.last_acts_at_s + times.closing_s < times.shutdown_deadline_s


def test_every_duration_that_a_timer_may_have_is_known() -> None:
    assert all(getattr(Durations(), name) > 0 for name in DURATIONS)


def test_every_deadline_of_every_table_is_a_setting_with_its_default() -> None:
    """R34: every duration is a setting, or follows from settings."""
    found = set()
    for machine in MACHINES.values():
        armed = [d for state in machine.states for s in machine.steps_at(state) for d in s.arms]
        for deadline in (*armed, *(entry.within for entry in machine.table.states if entry.within)):
            if deadline.setting == START_WITHIN:
                continue  # each job says it, or has no such deadline
            assert deadline.setting in DURATIONS
            assert getattr(Durations(), deadline.setting) == deadline.seconds
            found.add(deadline.setting)
    unused = set(Durations.__struct_fields__) - found
    assert unused == {
        "heartbeat_every_s",
        "request_ttl_s",
        "sweep_every_s",
        "simulation_stale_s",
        "worker_beat_every_s",
    }, "nobody waits for these"
