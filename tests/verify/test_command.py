"""`interlock verify`: what it says, and what it exits with."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.effort import pick

from interlock.cli.main import main
from interlock.store.memory import MemoryStore
from interlock_verification import environments, world_report
from interlock_verification.environments import plan_named
from interlock_verification.mutation import all_mutants
from interlock_verification.worlds.campaign import Campaign
from interlock_verification.worlds.episode import Episode, EpisodeResult
from interlock_verification.worlds.network import BrokenClaim

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """One command line: its exit code and what it printed."""

    def answer(*words: str) -> tuple[int, str, str]:
        code = main(["verify", *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return answer


def test_an_environment_that_is_sound_exits_with_0(run: Run) -> None:
    code, out, _ = run("model", "--environment", "first-job")
    name, states, *_ = out.split("\t")
    assert (code, name, states) == (0, "first-job", f"{plan_named('first-job').states:,}")
    assert "claims hold" in out


def test_json_has_every_claim_and_its_mode(run: Run) -> None:
    code, out, _ = run("model", "--environment", "first-job", "--json")
    (answer,) = json.loads(out)
    assert (code, answer["ok"], answer["report"]["complete"]) == (0, True, True)
    assert ["always", "only reports under the live lease are accepted"] in answer["report"]["claims"]


def test_an_exploration_that_reaches_its_limit_prints_nothing_found_so_far(run: Run) -> None:
    code, out, _ = run("model", "--environment", "shards", "--most", "500")
    assert (code, "nothing found so far" in out) == (0, True)


def test_a_violation_exits_with_1_and_prints_a_line_that_replays_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryStore, "_why_not", lambda *_: None)
    code, out, _ = run("model", "--environment", "race")
    assert code == 1
    assert "Not always: an attempt is granted to one worker only" in out
    assert "attempt 1.1: QUEUED → LEASED by grant" in out
    again = out.partition("Again: interlock verify ")[2].split()
    code, replay, _ = run(*again)
    assert code == 0
    assert "an attempt is granted to one worker only" in replay
    steps = [line for line in out.splitlines() if line[:6].strip().rstrip(".").isdigit()]
    assert steps == [line for line in replay.splitlines() if line[:6].strip().rstrip(".").isdigit()]


def test_another_count_of_states_is_a_finding(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import msgspec

    miscounted = msgspec.structs.replace(plan_named("first-job"), states=7)
    assert not environments.explore(miscounted).ok


def test_an_environment_that_does_not_exist_is_refused(run: Run) -> None:
    code, _, err = run("model", "--environment", "rase")
    assert code == 2
    assert "Did you mean race?" in err


@pytest.mark.parametrize("wrong", [("--replay", "1,2"), ("--environment", "race", "--replay", "one")])
def test_a_replay_needs_an_environment_and_numbers(run: Run, wrong: tuple[str, ...]) -> None:
    code, _, err = run("model", *wrong)
    assert (code, "--replay" in err) == (2, True)


def test_a_sample_of_the_mutants_is_tried(run: Run) -> None:
    code, out, _ = run("mutate", "--machine", "lease", "--sample", "6", "--json")
    answer = json.loads(out)
    assert (code, answer["ok"], answer["mutants"]) == (0, True, 6)
    known = {mutant.name for mutant in all_mutants()}
    assert {result["mutant"] for result in answer["results"]} <= known
    assert answer["fates"] == answer["results"]


def test_keys_of_the_json_output_that_were_renamed_have_their_earlier_names_as_well(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = run("world", "--list", "--json")
    worlds = json.loads(out)["worlds"]
    assert code == 0
    assert all(one["chapter_h"] == one["episode_h"] > one["short_episode_h"] for one in worlds)
    assert all(one["scene_h"] == one["short_episode_h"] for one in worlds)

    broken = BrokenClaim(claim="a claim", name="a.claim", description="", at_s=1.0)
    played = EpisodeResult(
        episode=Episode(world="laptop", faults="store", seed=91, hours=0.5),
        trace="",
        faults={},
        seen={},
        submitted=0,
        settled=0,
        turns=0,
        seconds=0.0,
        broken=broken,
    )
    monkeypatch.setattr(world_report, "play_all", lambda *_, **__: Campaign(episodes=1, failures=[played]))
    monkeypatch.setattr(world_report, "shrunk", lambda found, **_: found)
    code, out, _ = run("world", "--world", "laptop", "--faults", "store", "--seed", "91", "--json")
    answer = json.loads(out)
    assert (code, answer["episodes"], answer["chapters"]) == (1, 1, 1)
    for failure in (*answer["failures"], *answer["shrunk"]):
        assert failure["chapter"] == failure["episode"]
        assert (failure["chapter"]["seed"], failure["broken"]["claim"]) == (91, "a claim")


def test_a_machine_that_does_not_exist_has_no_mutants(run: Run) -> None:
    code, _, err = run("mutate", "--machine", "leese")
    assert (code, "lease" in err) == (2, True)


@pytest.mark.long
def test_exploring_environments_in_parallel_finds_the_expected_number_of_states() -> None:
    names = pick(("first-job", "given-back"), ("first-job", "race", "given-back"))
    plans = [plan_named(name) for name in names]
    watched: dict[str, int] = {}
    found = environments.explore_side_by_side(
        plans, watch=lambda name, states, _: watched.__setitem__(name, states)
    )
    states = {one.environment: one.report.states for one in found}
    assert states == {plan.name: plan.states for plan in plans}
    assert watched == states
