"""What the bench of the job queues makes of its turns, and what it refuses to believe."""

from __future__ import annotations

import re

import pytest
from bench.jobs import crowd, idle
from bench.jobs.contenders import PEERS, US, Peer, chosen, names
from bench.jobs.drains import Duel, rate
from bench.jobs.peers.adapter import batches, pause_s
from bench.jobs.places import Sized
from bench.jobs.turns import Drained, Idled, check_done, percentile
from bench.jobs.venvs import REQUIREMENTS
from bench.report import Line
from bench.rounds import Figure
from bench.stores.bare.loop import Unexpected

FAIR = {"done": 100, "left": 0, "never": 0, "twice": 0}


def drained(
    drain_s: float, *, jobs: int = 1_000, submit_s: float = 0.1, held_mb: tuple[float, ...] = (50.0,)
) -> Drained:
    return Drained(
        jobs=jobs,
        submitted_in_bulk=True,
        submit_s=submit_s,
        drain_s=drain_s,
        used_s=drain_s / 2,
        system_s=drain_s / 8,
        queued=Sized(before=0, after=2_000_000, jobs=jobs),
        held_mb=held_mb,
    )


def duel(theirs: list[Drained], ours: list[Drained], *, workers: int = 1) -> Duel:
    return Duel("SomeBase 1", Peer("other", 2.0, 1.0, submit_aim=1.0), workers, tuple(theirs), tuple(ours))


def test_a_benchmark_turn_in_which_every_job_ran_once_is_accepted() -> None:
    check_done("other", 100, FAIR)


@pytest.mark.parametrize(
    "fault", [{"done": 99}, {"left": 1}, {"never": 1}, {"twice": 1}], ids=lambda fault: next(iter(fault))
)
def test_a_benchmark_turn_with_a_missing_unfinished_or_repeated_job_is_refused_with_an_error(
    fault: dict[str, int],
) -> None:
    with pytest.raises(Unexpected, match="other should have ended with"):
        check_done("other", 100, {**FAIR, **fault})


def test_the_cost_of_a_job_is_the_time_of_the_turn_divided_by_the_number_of_jobs() -> None:
    turn = drained(0.5, jobs=1_000, submit_s=0.02)
    assert (turn.drain_us, turn.submit_us, turn.used_us) == pytest.approx((500.0, 20.0, 250.0))
    assert turn.queued_mb == pytest.approx(200.0)


def test_ratios_are_taken_between_turns_that_ran_side_by_side() -> None:
    lines = list(duel([drained(2.0), drained(8.0)], [drained(1.0), drained(4.0)]).lines())
    assert lines[0].ratio("other", US) == 2.0
    assert rate(lines[0], US) == pytest.approx(400.0)


def test_a_drain_that_is_fast_enough_misses_nothing() -> None:
    assert list(duel([drained(2.0)], [drained(1.0)]).missed()) == []


def test_a_drain_that_is_too_slow_is_named_with_its_store_its_peer_and_its_ratio() -> None:
    [sentence] = duel([drained(1.9)], [drained(1.0)], workers=2).missed()
    assert sentence == (
        "on SomeBase 1 with two workers jobs should be drained at least 2 times as fast as by other, "
        "and are 1.90 times as fast."
    )


def test_a_slow_submission_is_missed_once_and_not_for_each_number_of_workers() -> None:
    theirs, ours = [drained(3.0, submit_s=0.1)], [drained(1.0, submit_s=0.2)]
    [sentence] = duel(theirs, ours, workers=1).missed()
    assert "submitted at least 1 times as fast" in sentence
    assert list(duel(theirs, ours, workers=2).missed()) == []


def test_jobs_have_to_begin_sooner_than_those_of_the_best_peer() -> None:
    line = Line("", "ms", {US: Figure((3.0,)), "slow": Figure((9.0,)), "quick": Figure((2.5,))})
    [sentence] = idle.missed_in("SomeBase 1", line)
    assert "before 2.50 ms, as with quick, and have after 3.00 ms" in sentence
    assert idle.missed_in("SomeBase 1", Line("", "ms", {US: Figure((2.0,)), "quick": Figure((2.5,))})) == []
    assert idle.missed_in("SomeBase 1", Line("", "ms", {US: Figure((2.0,))})) == []


def test_an_idle_turn_gives_one_figure_for_each_of_its_measures() -> None:
    turns = {US: [Idled(micros=(1_000.0, 2_000.0, 9_000.0), submit_us=7.0, held_mb=40.0)]}
    figures = [line.figures[US].median for line in idle.lines_of("SomeBase 1", turns)]
    assert figures == [2.0, 9.0, 7.0, 40.0]


def test_a_long_queue_has_to_keep_nine_tenths_of_the_speed_and_the_memory() -> None:
    few = [drained(1.0, jobs=10_000)] * 3
    fair = drained(110.0, jobs=1_000_000, held_mb=(50.0, 52.0))
    slow = drained(120.0, jobs=1_000_000, held_mb=(50.0, 60.0))
    assert crowd.missed_in("SomeBase 1", *crowd.lines_of("SomeBase 1", few, fair)) == []
    speed, memory = crowd.missed_in("SomeBase 1", *crowd.lines_of("SomeBase 1", few, slow))
    assert speed.endswith("and has 0.83.")
    assert memory.endswith("and holds 1.20 times as much.")


@pytest.mark.parametrize(("part", "wanted"), [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.001, 1.0)])
def test_a_percentile_is_a_value_that_was_measured(part: float, wanted: float) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], part) == wanted


def test_the_store_is_left_alone_for_longer_the_more_is_left_to_do() -> None:
    assert pause_s(1_000, 0, 0.0) == pytest.approx(0.02)
    assert pause_s(1_000, 1, 1.0) == 0.25
    assert pause_s(1_000, 900, 0.9) == pytest.approx(0.025)
    assert pause_s(1_000, 999, 0.9) == 0.005


def test_batches_are_all_of_the_numbers_in_their_order() -> None:
    assert [list(some) for some in batches(range(3, 10), 3)] == [[3, 4, 5], [6, 7, 8], [9]]


def test_a_slow_peer_has_fewer_jobs_but_never_only_a_handful() -> None:
    assert Peer("slow", 5.0, 0.05).jobs(100_000) == 5_000
    assert Peer("slow", 5.0, 0.05).jobs(1_000) == 200
    assert Peer("slow", 5.0, 0.05).jobs(50) == 50


def test_the_comparison_includes_only_the_selected_stores_and_peers() -> None:
    assert chosen((), ()) == PEERS
    assert [peer.name for peer in chosen(("sqlite",), ())["SQLite"]] == ["huey", "dbos"]
    assert {store: [peer.name for peer in peers] for store, peers in chosen((), ("huey",)).items()} == {
        "SQLite": ["huey"],
        "Redis": ["huey"],
    }


@pytest.mark.parametrize("peer", names())
def test_every_package_that_a_peer_requires_is_pinned_to_a_version_without_a_url(peer: str) -> None:
    pins = (REQUIREMENTS / f"{peer}.txt").read_text(encoding="utf-8").splitlines()
    assert [pin for pin in pins if not re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; [^@]+)?", pin)] == []
    requirements = (REQUIREMENTS / f"{peer}.in").read_text(encoding="utf-8").split()
    wanted = {re.split(r"[\[=<>]", word)[0] for word in requirements}
    assert wanted <= {pin.partition("==")[0] for pin in pins}
