"""The settings of each system are those of `Settings`, under the names of the project file."""

from __future__ import annotations

import msgspec
import pytest

from interlock.lifecycles.durations import DEFAULTS, Durations
from interlock.systems.settings import DEFAULT_SETTINGS, Settings

SHARES = ("fleet", "schedules", "simulations", "supervisor")
SLOWER = Durations(**{name: 2 * value for name, value in msgspec.structs.asdict(DEFAULTS).items()})


@pytest.mark.parametrize("system", SHARES)
def test_a_system_takes_its_durations_from_the_settings_by_their_own_names(system: str) -> None:
    settings = Settings(durations=SLOWER)
    share = msgspec.structs.asdict(getattr(settings, system))
    durations = {name: value for name, value in share.items() if name != "jobs"}
    assert durations == {name: getattr(SLOWER, name) for name in durations} != {}


@pytest.mark.parametrize("system", SHARES)
def test_a_system_without_settings_has_those_of_the_defaults(system: str) -> None:
    share = getattr(DEFAULT_SETTINGS, system)
    alone, together = (msgspec.structs.asdict(each) for each in (type(share)(), share))
    for each in (alone, together):
        each.pop("jobs", None)
    assert alone == together


@pytest.mark.parametrize("system", sorted(set(SHARES) - {"fleet"}))
def test_a_system_that_submits_jobs_knows_the_settings_of_jobs(system: str) -> None:
    settings = Settings(losses=7, max_input_bytes=1_000)
    assert getattr(settings, system).jobs == settings
