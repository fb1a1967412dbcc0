"""Worlds on virtual time: they hold, they are the same again, and what fails in them is told in short."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from tests.effort import pick
from tests.waiting import PROGRAM_S
from typer.testing import CliRunner

import interlock
from interlock.cli.main import app
from interlock.errors import InvalidArguments
from interlock.systems.orchestrator import runner_messages
from interlock.worker import components
from interlock_verification.required_events import REQUIRED_EVENTS, TWICE
from interlock_verification.world_report import command_of, story_of
from interlock_verification.worlds.campaign import (
    Campaign,
    _hours_up_to,
    episodes_of,
    episodes_with,
    fewest,
    play_all,
    shrunk,
)
from interlock_verification.worlds.episode import Episode, play
from interlock_verification.worlds.faults import LATE, MIXES, REPLY_LOST, REQUEST_LOST, faults_named
from interlock_verification.worlds.faults import TWICE as TWICE_CALLED
from interlock_verification.worlds.network import BrokenClaim
from interlock_verification.worlds.scheduler import EnteredFromOutside, WorldSchedule
from interlock_verification.worlds.worlds import WORLDS, world_named

CALLS_GONE_WRONG = tuple(f": {what}" for what in (REQUEST_LOST, REPLY_LOST, LATE, TWICE_CALLED))
SHRINK_S = 10.0
"""A failure is told soon, be its story as short as it can be or not."""

PLAY = """
import os
from interlock_verification.worlds.faults import faults_named
from interlock_verification.worlds.episode import play
from interlock_verification.worlds.worlds import world_named

for world, faults, hours in (
    ("team", "everything", 0.5),
    ("pair", "lossy", 12.0),
    ("laptop", "deaths", 0.5),
    ("forest", "lossy", 0.3),
    ("lab", "network", 0.3),
    ("shift", "everything", 0.3),
    ("fleet", "everything", 0.3),
    ("keys", "everything", 0.3),
    ("post", "everything", 0.3),
    ("vendors", "network", 0.5),
):
    hours *= float(os.environ["SHARE"])
    print(play(world_named(world), faults_named(faults), seed=7, hours=hours).trace)
"""


def episodes_that_hold() -> list[Episode]:
    """Return an episode of every world with every mix of faults, each with a seed of its own."""
    episodes = list(episodes_of(270.0))
    assert {(one.world, one.faults) for one in episodes} == {
        (world.name, mix.name) for world in WORLDS for mix in MIXES if mix.name != "none"
    }
    assert len({one.seed for one in episodes}) == len(episodes)
    return episodes


def campaign_of(episodes: list[Episode]) -> Campaign:
    campaign = play_all(episodes)
    if campaign.failures:
        smaller = shrunk(campaign.failures[0], within_s=SHRINK_S)
        pytest.fail(
            "\n".join([f"{len(campaign.failures)} episodes failed.", *story_of(smaller)]), pytrace=False
        )
    return campaign


def test_every_world_and_every_mix_of_faults_hold_for_some_hours() -> None:
    """One of the episodes of each world, with the mixes in turn."""
    mixes = [mix.name for mix in MIXES if mix.name != "none"]
    wanted = {(world.name, mixes[place % len(mixes)]) for place, world in enumerate(WORLDS)}
    assert {mix for _, mix in wanted} == {*mixes}
    episodes = [one for one in episodes_that_hold() if (one.world, one.faults) in wanted]
    share = pick(0.08, 1.0)
    campaign = campaign_of([msgspec.structs.replace(one, hours=share * one.hours) for one in episodes])
    assert campaign.episodes >= len(WORLDS)
    assert campaign.faults.total() > share * 1_000
    assert campaign.submitted > share * 100


@pytest.mark.long
def test_200_hours_of_every_world_with_every_mix_of_faults_hold() -> None:
    campaign = campaign_of(episodes_that_hold())
    assert campaign.hours >= 200.0
    assert campaign.faults.total() > 5_000
    assert campaign.submitted > 500
    assert {event for event in REQUIRED_EVENTS if not campaign.seen[event]} == set(), "some never occurred"


@pytest.mark.long
def test_a_seed_gives_the_same_traces_in_every_process_and_installation_folder(tmp_path: Path) -> None:
    """Tracebacks of handlers that fail name files; so a hash once told where Interlock lies."""
    here = Path(interlock.__file__).parents[1]
    elsewhere = shutil.copytree(here, tmp_path / "elsewhere", ignore=shutil.ignore_patterns("__pycache__"))
    share = {"SHARE": str(pick(0.15, 1.0))}
    traces = [
        subprocess.run(
            [sys.executable, "-c", PLAY],
            env={**os.environ, **share, "PYTHONHASHSEED": seed, "PYTHONPATH": str(place)},
            check=True,
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
        ).stdout
        for seed, place in (("1", here), ("4711", elsewhere))
    ]
    assert traces[0] == traces[1]
    assert len(set(traces[0].split())) == 10


def test_a_world_does_not_depend_on_the_process_that_plays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers once registered with the start time of the real process."""
    traces = set()
    for began in ("1", "4711"):
        monkeypatch.setattr(components, "identity", lambda began=began: {"system": "a", "began": began})
        traces.add(play(world_named("shift"), faults_named("deaths"), seed=7, hours=0.03).trace)
    assert len(traces) == 1


@pytest.mark.long  # the models have shards in a quick run
def test_a_shard_that_succeeded_before_a_fail_over_is_counted_once() -> None:
    """The judge once counted it when the store came back, and again when the job ended."""
    played = play(world_named("team"), faults_named("lossy"), seed=13, hours=0.5)
    assert played.broken is None


@pytest.mark.long
def test_a_message_about_an_attempt_that_is_folded_need_not_be_answered_as_before() -> None:
    """Of a job that was given back 66 times the first attempts are not kept, and a late repeat found none."""
    played = play(world_named("team"), faults_named("everything"), seed=415, hours=1.5)
    assert played.broken is None


@pytest.mark.long
def test_a_claim_of_which_everything_has_ended_is_answered_with_nothing_as_over_http() -> None:
    """A server of a world once passed the refusal on, and the worker's loop crashed."""
    played = play(world_named("team"), faults_named("store"), seed=53, hours=1.1)
    assert played.broken is None


def test_a_failure_is_cut_off_behind_it_and_not_before_the_faults_that_lead_to_it() -> None:
    broken = BrokenClaim(claim="anything", name="any", description="", at_s=1_400.0, about="")
    played = msgspec.structs.replace(
        play(world_named("holidays"), faults_named("lossy"), seed=1, hours=0.5), broken=broken
    )
    assert _hours_up_to(played) == 0.5
    assert (
        _hours_up_to(msgspec.structs.replace(played, broken=msgspec.structs.replace(broken, at_s=60.0)))
        == 0.2
    )


@pytest.mark.long
def test_no_process_of_a_world_begins_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker once spoke with its supervisor from a thread, and no episode was the same again."""
    here, start = threading.current_thread(), threading.Thread.start

    def begin(thread: threading.Thread) -> None:
        assert threading.current_thread() is not here, f"{thread.name} begins"
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", begin)
    for world in WORLDS:
        played = play(world, faults_named("deaths"), seed=3, hours=pick(0.15, 0.5))
        assert played.broken is None


def test_a_call_from_another_thread_ends_the_world_with_an_error_that_names_the_thread() -> None:
    schedule = WorldSchedule()
    schedule.call_in(1.0, lambda: None)
    schedule.run(2.0)
    outside = threading.Thread(target=lambda: schedule.call_in(1.0, lambda: None), name="a stranger")
    outside.start()
    outside.join()
    with pytest.raises(EnteredFromOutside, match="a stranger"):
        schedule.run(4.0)


def test_another_seed_does_something_else() -> None:
    world, faults = world_named("pair"), faults_named("network")
    traces = {play(world, faults, seed=seed, hours=4.0).trace for seed in (1, 2)}
    assert len(traces) == 2


@pytest.mark.long  # with faults is the harder case
def test_without_faults_nothing_is_lost_or_done_twice() -> None:
    played = play(world_named("pair"), faults_named("none"), seed=5, hours=48.0)
    assert played.broken is None
    assert not any(played.faults.values())
    assert played.seen["job COMPLETED"] > 50
    assert "a job that is lost too often fails" not in played.seen


def test_a_chapter_with_only_some_of_its_faults_has_only_those() -> None:
    world, faults = world_named("pair"), faults_named("deaths")
    played = play(world, faults, seed=3, hours=12.0, only=["t1", "t2"])
    assert sum(played.faults.values()) <= 2


def test_a_failure_shrinks_to_a_story_that_one_can_read_and_play_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner_messages, "_repeated", lambda *_: None)
    (episode,) = episodes_with(7, worlds=[world_named("pair")], faults=[faults_named("network")], hours=0.5)
    (failure,) = play_all([episode]).failures
    smaller = shrunk(failure, within_s=PROGRAM_S)  # it is done long before, so no clock has a say
    assert smaller.broken is not None
    assert smaller.broken.claim == TWICE
    assert smaller.episode.only is not None
    assert 0 < len(smaller.episode.only) < len(failure.happened) / 2
    faults = [report for report in smaller.story if report.endswith(CALLS_GONE_WRONG)]
    assert 0 < len(faults) <= len(smaller.episode.only)
    command = command_of(smaller.episode)
    arguments = command.split()[1:]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["failures"][0]["broken"]["claim"] == TWICE


def test_as_few_names_as_still_fail_are_found() -> None:
    names = [f"t{number}" for number in range(100)]
    found = fewest(names, lambda only: {"t17", "t80"} <= set(only), lambda: False)
    assert sorted(found) == ["t17", "t80"]
    assert fewest(names, lambda _: True, lambda: False) == []
    assert fewest(names, lambda only: {"t17", "t80"} <= set(only), lambda: True) == names


def test_the_command_lists_its_worlds_and_its_faults() -> None:
    result = CliRunner().invoke(app, ["verify", "world", "--list"])
    assert result.exit_code == 0
    assert all(world.name in result.stdout for world in WORLDS)
    assert all(mix.name in result.stdout for mix in MIXES)


def test_the_command_plays_one_chapter_and_prints_that_every_claim_holds() -> None:
    result = CliRunner().invoke(
        app, ["verify", "world", "--world", "pair", "--faults", "store", "--seed", "2", "--hours", "6"]
    )
    assert result.exit_code == 0, result.stdout
    assert "every claim holds" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--hours", "1", "--years", "1"],
        ["--only", "t1"],
    ],
)
def test_a_wrong_question_is_reported(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["verify", "world", *arguments])
    assert result.exit_code == 2


def test_a_name_that_is_not_there_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(InvalidArguments, match="Did you mean team"):
        world_named("tema")
    with pytest.raises(InvalidArguments, match="Did you mean network"):
        faults_named("netwrok")
