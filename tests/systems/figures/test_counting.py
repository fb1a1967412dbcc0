"""What is counted, by what, and within which bounds: on a store in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from tests.systems.figures.counters import FLAKY, count, counter, counts, seen
from tests.systems.orchestrator.house import TTL_S, House, done, failed, release

from interlock.engine.retention import sweep_ended
from interlock.server.settings import ServerSettings
from interlock.store.records import Change, Commit, Key, Note
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.figures import figures as module
from interlock.systems.figures import series
from interlock.systems.figures.figures import HEAD, POINTS, STEPS_MIN, Figures, Question, keys_for
from interlock.systems.figures.series import (
    FIGURES,
    OTHER,
    Cell,
    PeriodFigures,
    bucket_of,
    percentile,
    read_part,
    written,
)
from interlock.wire.figures import LONGEST_MIN


@pytest.fixture
async def house() -> AsyncIterator[House]:
    one = await House().open()
    yield one
    await one.close()


@pytest.fixture
async def figures(house: House) -> Figures:
    one = counter(house)
    await one.round()
    return one


async def test_every_end_is_counted_under_its_queue_and_task(house: House, figures: Figures) -> None:
    for _ in range(3):
        await house.heard(done(await house.started(task="build")))
    await house.heard(failed(await house.started(task="build", queue="mail"), "user"))
    await house.jobs.cancel(await house.submit(task="sleep"))
    await count(figures)
    view = await seen(house)
    assert counts(view.totals) == (5, 3, 1, 1, 0)
    assert {(each.queue, each.task): counts(each) for each in view.tasks} == {
        ("default", "build"): (3, 3, 0, 0, 0),
        ("mail", "build"): (1, 0, 1, 0, 0),
        ("default", "sleep"): (1, 0, 0, 1, 0),
    }
    assert counts((await seen(house, queue="mail")).totals) == (1, 0, 1, 0, 0)
    assert counts((await seen(house, task="sleep")).totals) == (1, 0, 0, 1, 0)
    assert counts((await seen(house, queues=frozenset({"mail"}))).totals) == (1, 0, 1, 0, 0)


async def test_a_failed_and_a_lost_attempt_count_as_retries_and_a_released_attempt_does_not(
    house: House, figures: Figures
) -> None:
    grant = await house.started(retry=FLAKY)
    await house.heard(failed(grant, "flaky"))
    await house.heard(release(await house.grant()))
    await house.grant()
    await house.later(TTL_S + 1)
    await house.heard(done(await house.grant()))
    await count(figures)
    assert counts((await seen(house)).totals) == (1, 1, 0, 0, 2)


async def test_waiting_and_running_are_timed_within_a_fifth(house: House, figures: Figures) -> None:
    await house.submit()
    house.clock.jump(30)
    grant = await house.grant()
    house.clock.jump(7)
    await house.heard(done(grant))
    await count(figures)
    totals = (await seen(house)).totals
    assert totals.wait_p50_s == pytest.approx(30, rel=0.2)
    assert totals.run_p95_s == pytest.approx(7, rel=0.2)


async def test_each_minute_is_a_point_and_the_backlog_is_sampled_in_each(
    house: House, figures: Figures
) -> None:
    for number in range(3):
        for _ in range(number + 1):
            await house.submit()
        await count(figures)
        house.clock.jump(60)
    await house.claim(limit=2)
    await count(figures)
    view = await seen(house, 15)
    assert [point.submitted for point in view.points[-4:]] == [1, 2, 3, 0]
    assert [(point.pending, point.running) for point in view.points[-4:]] == [(1, 0), (3, 0), (6, 0), (4, 2)]
    assert view.points[0].pending is None
    assert len(view.points) == 15


@pytest.mark.parametrize("minutes", [1, 15, 60, 120, 121, 360, 1_440, 1_800, 1_801, 4_320, LONGEST_MIN])
async def test_a_chart_has_at_most_120_points_for_a_period_of_any_length(house: House, minutes: int) -> None:
    view = await seen(house, minutes)
    assert 1 <= len(view.points) <= POINTS
    assert view.step_s // 60 in STEPS_MIN
    assert len(view.points) * view.step_s >= minutes * 60
    assert view.points[-1].at <= view.until < view.points[-1].at + timedelta(seconds=view.step_s)


@pytest.mark.parametrize("minutes", [60, 1_440, LONGEST_MIN])
async def test_hours_and_minutes_add_up_to_the_same(house: House, figures: Figures, minutes: int) -> None:
    for _ in range(5):
        await house.heard(done(await house.started()))
        house.clock.jump(600)
    await count(figures)
    assert counts((await seen(house, minutes)).totals) == (5, 5, 0, 0, 0)


async def test_when_there_are_too_many_jobs_to_load_their_counts_are_exact_and_their_tasks_estimated(
    house: House, figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOADS", 10)
    for number in range(100):
        await house.submit("often" if number % 4 else "seldom")
    for grant in await house.claim(limit=100):
        await house.heard(done(grant))
    await count(figures)
    view = await seen(house)
    assert counts(view.totals) == (100, 100, 0, 0, 0)
    assert view.estimated > 0
    assert sum(each.submitted for each in view.tasks) == 100
    assert view.totals.run_p50_s is not None
    loaded = sum(each.completed for each in view.tasks if each.task == "often")
    assert 50 <= loaded <= 100


async def test_large_inputs_are_not_all_loaded(
    house: House, figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BYTES", 10_000)
    monkeypatch.setattr(module, "CHUNK", 5)
    for _ in range(20):
        await house.submit(input=msgspec.Raw(b'"' + b"x" * 5_000 + b'"'))
    await count(figures)
    view = await seen(house)
    assert (view.totals.submitted, view.estimated) == (20, 15)


async def test_a_journal_longer_than_a_round_is_counted_in_several(
    house: House, figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENTRIES", 7)
    for _ in range(20):
        await house.submit()
    rounds = 0
    while await figures.round() >= 7:
        rounds += 1
    assert rounds >= 2
    assert (await seen(house)).totals.submitted == 20


async def test_a_server_that_was_away_for_days_changes_few_records_in_a_round(
    house: House, figures: Figures
) -> None:
    for _ in range(30):
        await house.submit()
        house.clock.jump(3_600)
    rounds = 0
    while await figures.round() >= module.ENTRIES:
        rounds += 1
    assert rounds == 30 // module.RECORDS
    assert (await seen(house, LONGEST_MIN)).totals.submitted == 30


async def test_tasks_over_the_limit_of_pairs_are_counted_by_queue_and_then_as_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(series, "PAIRS", 3)
    monkeypatch.setattr(series, "QUEUES", 2)
    part = PeriodFigures()
    for number in range(10):
        part.add(1, (f"q{number // 2}", f"t{number}"), Cell(submitted=1))
    assert part.pairs == [("q0", "t0"), ("q0", "t1"), ("q1", "t2"), ("q1", ""), ("q2", ""), OTHER]
    assert sum(cell.submitted for cell in part.cells[1].values()) == 10


def test_a_figures_record_over_the_size_limit_merges_its_pairs_of_queue_and_task() -> None:
    part = PeriodFigures()
    for minute in range(15):
        for number in range(series.PAIRS):
            spread = dict.fromkeys(range(60), 1_000_000)
            part.add(
                minute, (f"q{number % 50}", f"task-{number}"), Cell(completed=1, wait=spread, run=spread)
            )
    body = written(part)
    assert len(body) <= series.LARGEST
    kept = read_part(body)
    assert kept.pairs == [OTHER]
    assert (
        sum(cell.completed for cells in kept.cells.values() for cell in cells.values()) == 15 * series.PAIRS
    )


def test_of_many_queues_the_largest_backlogs_are_kept_and_the_others_added_up() -> None:
    kept = series.largest({f"q{number}": (number, 1) for number in range(series.QUEUES + 2)})
    assert kept[""] == (0 + 1, 2)
    assert len(kept) == series.QUEUES + 1


@pytest.mark.parametrize("seconds", [0.0, 0.0004, 0.001, 0.02, 0.7, 1.0, 59.0, 3_600.0, 86_400.0])
def test_a_duration_is_kept_within_a_fifth(seconds: float) -> None:
    assert percentile({bucket_of(seconds): 1}, 0.5) == pytest.approx(seconds, rel=0.2, abs=0.001)


async def test_entries_that_were_pruned_before_they_were_counted_are_a_gap_and_no_error(
    house: House, figures: Figures
) -> None:
    await house.jobs.cancel(await house.submit())
    house.clock.jump(3_600)
    await sweep_ended(house.store, CATALOGUE, ServerSettings().retention)
    await house.store.prune(kind="job", states=["CANCELED"], older_than=timedelta(minutes=1))
    await house.submit()
    await count(figures)
    view = await seen(house, 120)
    assert [place for place, point in enumerate(view.points) if point.gap] == [59]
    assert counts(view.totals) == (1, 0, 0, 0, 0)
    await house.submit()
    house.clock.jump(60)
    await count(figures)
    view = await seen(house, 120)
    assert [place for place, point in enumerate(view.points) if point.gap] == [58]
    assert counts(view.totals) == (2, 0, 0, 0, 0)


async def test_a_job_that_was_pruned_before_it_was_counted_is_of_no_known_task(
    house: House, figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.jobs.cancel(await house.submit())

    load = house.store.load

    async def pruned(keys: list[Key]) -> list[object]:
        return [None if key.kind == "job" else (await load([key]))[0] for key in keys]

    monkeypatch.setattr(house.store, "load", pruned)
    await count(figures)
    (other,) = (await seen(house)).tasks
    assert (other.queue, other.task, counts(other)) == ("", "", (1, 0, 0, 1, 0))


async def test_a_job_whose_body_cannot_be_read_is_counted_by_its_queue(
    house: House, figures: Figures
) -> None:
    change = Change(
        kind="job", id="j_odd", expected=0, state="SUBMITTED", body=b"{}", queue="mail", note=Note()
    )
    await house.store.commit([Commit(changes=(change,))])
    await count(figures)
    (other,) = (await seen(house)).tasks
    assert (other.queue, other.task, counts(other)) == ("mail", "", (1, 0, 0, 0, 0))


async def test_figures_are_forgotten_after_seven_days_and_then_pruned(house: House, figures: Figures) -> None:
    await house.submit()
    await count(figures)
    now = await house.store.now()
    minutes = Key(FIGURES.name, series.MINUTES.id_of(int(now.timestamp()) // 900))
    hours = Key(FIGURES.name, series.HOURS.id_of(int(now.timestamp()) // 43_200))
    house.clock.jump("6.9d")
    assert await figures.sweep() == 0
    house.clock.jump("0.7d")
    assert await figures.sweep() == 2
    assert await figures.sweep() == 0
    house.clock.jump("2h")
    await sweep_ended(house.store, CATALOGUE, ServerSettings().retention)
    found = await house.store.load([minutes, hours, HEAD])
    assert [record is None for record in found] == [True, True, False]


async def test_counting_leaves_no_journal_that_would_have_to_be_counted(
    house: House, figures: Figures
) -> None:
    await house.submit()
    before = await house.store.latest()
    for _ in range(5):
        await count(figures)
        house.clock.jump("10d")
        assert await figures.sweep() == 2
    assert await house.store.latest() == before


async def test_a_server_leaves_a_round_out_that_another_one_has_just_done(house: House) -> None:
    one, other = (Figures(house.port.services.engine) for _ in range(2))
    await one.round()
    house.clock.jump(5)
    await house.submit()
    assert await one.round() == 1
    await house.submit()
    house.clock.jump(1)
    assert await other.round() == 0
    house.clock.jump(4)
    assert await other.round() == 1


async def test_the_counted_backlog_of_every_queue_equals_its_pending_and_running_jobs(
    house: House, figures: Figures
) -> None:
    for number in range(12):
        queue = f"q{number % 3}"
        job_id = await house.submit(queue=queue, retry=FLAKY)
        if number % 4:
            grant = await house.grant(queues=(queue,))
            if number % 4 == 2:
                await house.heard(done(grant))
            if number % 4 == 3:
                await house.heard(failed(grant, "flaky"))
        elif number % 8:
            await house.jobs.cancel(job_id)
        await count(figures)
        queues = {each.name: (each.pending, each.running) for each in await house.port.services.queues.list()}
        assert await figures.backlog() == queues


async def test_the_first_count_includes_jobs_that_were_already_in_the_store(house: House) -> None:
    for queue in ("a", "a", "b"):
        await house.submit(queue=queue)
    await house.grant(queues=("b",))
    figures = counter(house)
    await figures.round()
    assert await figures.backlog() == {"a": (2, 0), "b": (0, 1)}


async def test_the_first_count_of_a_long_queue_takes_all_of_its_jobs(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RECOUNTED", 2)
    for _ in range(7):
        await house.submit(queue="mail")
    figures = counter(house)
    await figures.round()
    assert await figures.backlog() == {"mail": (7, 0)}
    assert await figures.is_complete(house.clock())


async def test_a_first_count_that_leaves_jobs_out_is_incomplete_until_few_jobs_remain(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RECOUNTED", 2)
    monkeypatch.setattr(module, "COUNTED_FIRST", 4)
    jobs = [await house.submit(queue="mail") for _ in range(7)]
    figures = counter(house)
    await figures.round()
    assert await figures.backlog() == {"mail": (4, 0)}
    assert not await figures.is_complete(house.clock())
    for job_id in jobs[:5]:
        await house.jobs.cancel(job_id)
    await count(figures)
    house.clock.jump(60)
    await count(figures)
    assert await figures.backlog() == {"mail": (2, 0)}
    assert await figures.is_complete(house.clock())


async def test_a_backlog_that_is_off_is_put_right_when_nothing_happens(
    house: House, figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOADS", 1)
    for number in range(9):
        await house.submit(queue=f"q{number % 3}")
    await count(figures)
    right = {f"q{number}": (3, 0) for number in range(3)}
    assert await figures.backlog() != right
    house.clock.jump(60)
    await count(figures)
    assert await figures.backlog() == right


async def test_jobs_are_loaded_once_until_they_end(
    house: House, figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Key] = []
    load = house.store.load

    async def noted(keys: list[Key]) -> object:
        loaded.extend(key for key in keys if key.kind == "job")
        return await load(keys)

    grant = await house.started()
    monkeypatch.setattr(house.store, "load", noted)
    await figures.round()
    for _ in range(3):
        await house.heard(release(grant))
        grant = await house.grant()
        await figures.round()
    assert len(loaded) == 1


def test_seven_days_are_read_from_few_records() -> None:
    now = datetime(2026, 5, 5, 17, 3, tzinfo=UTC)
    numbers = [len(keys_for(Question(minutes=each), now)) for each in range(1, LONGEST_MIN + 1)]
    assert max(numbers) <= 122


async def test_entries_that_share_their_note_count_like_entries_with_notes_of_their_own(house: House) -> None:
    for _ in range(3):
        await house.heard(done(await house.started(task="build")))
    await house.heard(failed(await house.started(task="build"), "user"))
    entries = (await house.store.feed("", limit=1_000)).entries
    notes = [msgspec.structs.replace(each.note, request_id="", actor="") for each in entries]
    own = [msgspec.structs.replace(each, note=note) for each, note in zip(entries, notes, strict=True)]
    shared: dict[Note, Note] = {}
    alike = [msgspec.structs.replace(each, note=shared.setdefault(each.note, each.note)) for each in own]
    assert len({id(each.note) for each in alike}) < len({id(each.note) for each in own})
    expected = list(series.events_of(own))
    assert [event.what for event in expected].count("completed") == 3
    assert list(series.events_of(alike)) == expected
    assert list(series.events_of(reversed(alike))) == list(series.events_of(reversed(own)))
