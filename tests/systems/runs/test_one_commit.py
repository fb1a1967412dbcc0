"""A run does what it can in its own commit; the result equals that of its messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import pick
from tests.systems.orchestrator.house import done
from tests.systems.runs.any_plans import DIAMOND, planned_jobs
from tests.systems.runs.site import Site, plan, planned

from interlock.engine.aggregate import rewritten
from interlock.engine.outbox import MESSAGE
from interlock.lifecycles import run
from interlock.store.records import (
    Change,
    Commit,
    Key,
    Outcome,
    Query,
    Record,
    Work,
    one_by_one,
    record_after,
)
from interlock.systems.orchestrator import submission
from interlock.systems.orchestrator.notifications import JobChanged, JobsChanged
from interlock.systems.orchestrator.shapes import ANY_RUN
from interlock.systems.runs import new_jobs, orders
from interlock.systems.runs.aggregate import RunAggregate
from interlock.systems.runs.body import RunBody, decode_run
from interlock.systems.runs.new_jobs import JobSource
from interlock.systems.runs.orders import (
    JointDecisions,
    created_within,
    decide_one,
    orders_of,
    released_within,
)
from interlock.systems.runs.plans import PlanPiece, pieces_of, plan_graph
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.runs import ForkTerms, PlannedJob, RunSpec, Source

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
RUN_ID, OTHER_ID = "r_000000000001", "r_000000000002"
MARK = "m"
STEPS = {"RUNNING": ("allocate_resources", "PENDING"), "COMPLETED": ("success", "RUNNING")}


OTHERWISE: list[dict[str, Any]] = [
    {"name": "other"},
    {"task": "other"},
    {"task": ANY_RUN},
    {"secrets": (ANY_RUN,)},
    {"input": msgspec.Raw(b"[1]")},
    {"required": False},
    {"labels": ("gpu",)},
    {"environment": "production"},
]


@st.composite
def run_bodies(draw: st.DrawFn) -> RunBody:
    """What runs of one plan may have been submitted with; some are submitted with the same."""
    source = Source(
        repository=draw(st.sampled_from(["r", "s"])),
        ref=draw(st.sampled_from(["", "refs/heads/main"])),
        sha=draw(st.sampled_from(["a", "b"])),
        from_fork=draw(st.sampled_from([False, False, True])),
    )
    spec = RunSpec(
        source=source,
        priority=draw(st.sampled_from([0, 0, 3])),
        trace=draw(st.sampled_from([{}, {}, {"traceparent": "t"}])),
    )
    return RunBody(
        spec=spec,
        claimed=draw(st.sampled_from([False, False, True])),
        terms=draw(st.sampled_from([None, ForkTerms(queue="other")])),
    )


def queued(
    jobs: tuple[PlannedJob, ...],
    body: RunBody,
    run_id: str = RUN_ID,
    carried: frozenset[int] = frozenset(),
) -> tuple[RunAggregate, list[PlanPiece]]:
    """Return a run that accepts this plan, and the pieces of the plan."""
    letter = "j" if run_id == RUN_ID else "k"
    pieces = pieces_of(plan(*jobs), [f"{letter}_{place}" for place in range(len(jobs))], carried)
    body.pieces = len(pieces)
    draft = RunAggregate.new(run_id, body, NOW, DEFAULT_SETTINGS.durations)
    assert draft.send(run.start_planning) is None
    assert draft.accept(plan_graph(pieces)) is None
    return draft, pieces


def later(draft: RunAggregate) -> RunAggregate:
    """Return the run as it was committed, a second later."""
    record = record_after(draft.change(commit_id=MARK, actor=""), draft.record, draft.now)
    return RunAggregate.of(
        record, draft.now + timedelta(seconds=1), DEFAULT_SETTINGS.durations, graph=draft.graph
    )


def joint(draft: RunAggregate) -> JointDecisions:
    """Return decisions that this run shares with no other."""
    return JointDecisions(draft.now, MARK, DEFAULT_SETTINGS)


def changes_alone(
    draft: RunAggregate, jobs: dict[str, Record], pieces: Sequence[PlanPiece]
) -> dict[tuple[str, str], Change]:
    """Return the changes that orders make which are carried out for each job alone."""
    assert draft.graph is not None
    source = JobSource(draft.body, draft.graph, dict(enumerate(pieces)))
    made: list[Change] = []
    for order in orders_of(draft):
        for place in order.places:
            record = jobs.get(draft.graph.ids[place])
            decision = decide_one(order, place, source, DEFAULT_SETTINGS, record, draft.now, MARK)
            made += decision.commit.changes if decision.commit is not None else ()
    return {(change.kind, change.id): change for change in made}


def by_name(found: orders.CarriedOut) -> dict[tuple[str, str], Change]:
    """Return the changes that are carried out in the commit of the run."""
    return {(change.kind, change.id): change for changes in found.values() for change in changes}


@settings(max_examples=pick(80, 400), deadline=None, derandomize=True)
@given(planned_jobs(), st.lists(run_bodies(), min_size=1, max_size=4), st.data())
def test_jobs_created_in_the_commit_of_their_run_equal_jobs_created_by_orders(
    jobs: tuple[PlannedJob, ...], bodies: list[RunBody], data: st.DataObject
) -> None:
    shared = JointDecisions(NOW, MARK, DEFAULT_SETTINGS)
    for number, body in enumerate(bodies):
        some = jobs
        if number and data.draw(st.booleans()):
            place = data.draw(st.integers(0, len(jobs) - 1))
            spoilt = msgspec.structs.replace(jobs[place], **data.draw(st.sampled_from(OTHERWISE)))
            some = (*jobs[:place], spoilt, *jobs[place + 1 :])
        draft, pieces = queued(some, body, (RUN_ID, OTHER_ID, "r_3")[number % 3])
        within = created_within(draft, orders_of(draft), pieces, shared)
        assert set(within) == set(orders_of(draft))
        assert by_name(within) == changes_alone(draft, {}, pieces)


COMMON = RunSpec(source=Source(repository="r", ref="main"))
OTHER_RUNS: dict[str, RunBody] = {
    "repository": RunBody(spec=RunSpec(source=Source(repository="s", ref="main"))),
    "ref": RunBody(spec=RunSpec(source=Source(repository="r", ref="other"))),
    "pull request": RunBody(spec=RunSpec(source=Source(repository="r", ref="main", pull_request=1))),
    "fork": RunBody(spec=RunSpec(source=Source(repository="r", ref="main", from_fork=True))),
    "priority": RunBody(spec=msgspec.structs.replace(COMMON, priority=1)),
    "trace": RunBody(spec=msgspec.structs.replace(COMMON, trace={"traceparent": "t"})),
    "claimed": RunBody(spec=COMMON, claimed=True),
    "nothing": RunBody(spec=COMMON),
}


@pytest.mark.parametrize("difference", [*OTHER_RUNS, *map(str, range(len(OTHERWISE))), "carried"])
def test_a_run_that_differs_from_another_gets_jobs_of_its_own_all_the_same(difference: str) -> None:
    jobs = tuple(planned(f"a{n}") for n in range(3))
    shared = JointDecisions(NOW, MARK, DEFAULT_SETTINGS)
    first, pieces = queued(jobs, RunBody(spec=COMMON))
    created_within(first, orders_of(first), pieces, shared)
    body = OTHER_RUNS.get(difference, OTHER_RUNS["nothing"])
    carried = frozenset({2}) if difference == "carried" else frozenset()
    if difference.isdecimal():
        jobs = (msgspec.structs.replace(jobs[0], **OTHERWISE[int(difference)]), *jobs[1:])
    second, pieces = queued(jobs, body, OTHER_ID, carried)
    within = created_within(second, orders_of(second), pieces, shared)
    assert by_name(within) == changes_alone(second, {}, pieces)


def test_runs_of_one_plan_are_created_by_one_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[str] = []
    original = submission.new_job

    def count(*given: Any, **named: Any) -> Any:
        decided.append(given[1])
        return original(*given, **named)

    monkeypatch.setattr(new_jobs, "new_job", count)
    shared = JointDecisions(NOW, MARK, DEFAULT_SETTINGS)
    for run_id in (RUN_ID, OTHER_ID):
        draft, pieces = queued(DIAMOND, RunBody(spec=COMMON), run_id)
        assert created_within(draft, orders_of(draft), pieces, shared)
    assert len(decided) == 3, "of the first layer, the second, and an optional job"


@settings(max_examples=pick(80, 400), deadline=None, derandomize=True)
@given(planned_jobs(), st.lists(run_bodies(), min_size=1, max_size=3), st.data())
def test_jobs_released_in_the_commit_of_their_run_equal_jobs_released_by_orders(
    jobs: tuple[PlannedJob, ...], bodies: list[RunBody], data: st.DataObject
) -> None:
    shared = JointDecisions(NOW + timedelta(seconds=1), MARK, DEFAULT_SETTINGS)
    for number, body in enumerate(bodies):
        draft, pieces = queued(jobs, body, (RUN_ID, OTHER_ID, "r_3")[number])
        created = changes_alone(draft, {}, pieces)
        records = {
            name: record_after(change, None, NOW) for (kind, name), change in created.items() if kind == "job"
        }
        draft = later(draft)
        roots = [place for place, job in enumerate(jobs) if not job.needs]
        ended = data.draw(st.lists(st.sampled_from(roots), unique=True, min_size=1))
        draft.apply_jobs([JobChanged(draft.id, place, "success", "RUNNING", "COMPLETED") for place in ended])
        found = released_within(draft, orders_of(draft), records, shared)
        assert by_name(found) == changes_alone(draft, records, pieces)


@pytest.mark.parametrize("unexpected", ["missing", "foreign"])
def test_an_order_about_a_job_that_is_not_as_expected_stays_a_message(unexpected: str) -> None:
    jobs = (planned("a0"), planned("a1"), planned("b0", "a0"), planned("b1", "a0"))
    draft, pieces = queued(jobs, RunBody(spec=RunSpec()))
    created = changes_alone(draft, {}, pieces)
    records = {name: record_after(change, None, NOW) for (_, name), change in created.items()}
    draft = later(draft)
    draft.apply_jobs([JobChanged(RUN_ID, 0, "success", "RUNNING", "COMPLETED")])
    (order,) = orders_of(draft)
    assert order.places == (2, 3)
    assert [*orders._carried_out(draft, [order], records, {}, joint(draft))] == [order]
    for name in ("j_2", "j_3"):
        record = records.pop(name)
        if unexpected == "foreign":
            records[name] = msgspec.structs.replace(record, parent="r_2")
    assert orders._carried_out(draft, [order], records, {}, joint(draft)) == {}


@settings(max_examples=pick(150, 600), deadline=None, derandomize=True)
@given(
    planned_jobs(),
    st.lists(
        st.tuples(
            st.sampled_from(["RUNNING", "COMPLETED", "FAILED"]), st.lists(st.integers(-1, 8), min_size=1)
        ),
        max_size=4,
    ),
    st.booleans(),
)
def test_a_step_of_many_jobs_changes_their_run_like_the_step_of_each(
    jobs: tuple[PlannedJob, ...], told: list[tuple[str, list[int]]], canceled: bool
) -> None:
    draft, _ = queued(jobs, RunBody(spec=RunSpec()))
    steps = {**STEPS, "FAILED": ("error", "RUNNING")}
    together = [JobsChanged(RUN_ID, tuple(places), *steps[target], target) for target, places in told]
    results = []
    for changes in (together, [one for each in together for one in each.each]):
        known = later(draft)
        if canceled:
            known.send(run.cancel)
        known.apply_jobs(changes)
        release, stop = sorted(known.release), known.stop
        results.append((known.change(commit_id=MARK, actor=""), release, stop))
    assert results[0] == results[1]


# On stores


def commits_from_now_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> list[Commit]:
    """Return the list to which everything is added that the processes of a site commit."""
    seen: list[Commit] = []
    commit = site.store.commit

    async def remembered(work: Sequence[Work]) -> list[Outcome]:
        seen.extend(one_by_one(work))
        return await commit(work)

    monkeypatch.setattr(site.store, "commit", remembered)
    return seen


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def any_site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    """A site on each store."""
    url = ""
    match request.param:
        case "memory":
            pass
        case "sqlite":
            url = f"sqlite:///{tmp_path / 'runs.db'}"
        case "postgres":
            url = request.getfixturevalue("postgres").new_database()
        case _:
            url = request.getfixturevalue("redis").url
    site = Site(url=url) if url else Site()
    await site.open(asking=not url)
    yield site
    await site.close()
    if request.param == "redis":
        request.getfixturevalue("redis").run("FLUSHALL")


async def whole_life(site: Site) -> tuple[list[str], dict[str, list[tuple[str, str, str]]]]:
    """Return the path of a run, and that of each of its jobs by name."""
    run_id = await site.begin(*DIAMOND)
    for _ in range(3):
        given = await site.offered(run_id)
        assert given
        await site.port.report([done(grant) for grant in given.values()])
        await site.recover()
    assert (await site.look(run_id)).outcome == "SUCCESS"
    jobs: dict[str, list[tuple[str, str, str]]] = {}
    for job_id, name in (await site.names(run_id)).items():
        entries = (await site.store.history(Key("job", job_id))).entries
        jobs[name] = [(s.machine, s.event, s.target) for entry in entries for s in entry.note.steps]
    assert await site.all_faults() == []
    return await site.path(run_id), jobs


async def test_a_run_that_creates_and_releases_its_jobs_itself_lives_like_one_that_orders_it(
    any_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    within = await whole_life(any_site)
    monkeypatch.setattr(orders, "MOST_WITHIN", 0)
    assert await whole_life(any_site) == within
    messages = (await any_site.store.find(Query(kind=MESSAGE.name, limit=100))).records
    ordered = [message for message in messages if message.queue == orders.ORDERS]
    assert len(ordered) == 4, "only the second run gave orders"


async def test_a_run_that_cannot_be_decided_does_not_hold_the_others_of_its_round(site: Site) -> None:
    runs = [await site.begin(planned("a"), planned("b", "a")) for _ in range(3)]
    given = await site.claim(limit=100)
    (record,) = await site.store.load([Key("run", runs[1])])
    assert record is not None
    await site.store.commit([Commit(changes=(rewritten(record, body=b'{"spec":1}'),))])
    await site.port.report([done(grant) for grant in given])
    with pytest.raises(msgspec.ValidationError):
        await site.runs.reconciler.apply_changes()
    for run_id in (runs[0], runs[2]):
        assert await site.standing(run_id) == {"a": "COMPLETED", "b": "PENDING"}


async def test_runs_that_meet_a_conflict_are_decided_again_without_the_others(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.by_messages()
    runs = [await site.begin(planned("a"), planned("b", "a")) for _ in range(3)]
    await site.port.report([done(grant) for grant in await site.claim(limit=100)])
    loaded = orders.Orders.jobs_to_release
    asked: list[int] = []

    async def meanwhile(self: orders.Orders, ordered: Any, joint: JointDecisions) -> dict[str, Record]:
        found = await loaded(self, ordered := list(ordered), joint)
        asked.append(len(ordered))
        if len(asked) == 1:
            (record,) = await site.store.load([Key("run", runs[1])])
            assert record is not None
            await site.store.commit([Commit(changes=(rewritten(record),))])
        return found

    monkeypatch.setattr(orders.Orders, "jobs_to_release", meanwhile)
    await site.runs.reconciler.apply_changes()
    assert asked == [3, 1]
    for run_id in runs:
        assert await site.standing(run_id) == {"a": "COMPLETED", "b": "PENDING"}
    assert await site.all_faults() == []


async def test_changes_that_another_process_has_applied_meanwhile_are_not_applied_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.by_messages()
    runs = [await site.begin(planned("a"), planned("b", "a")) for _ in range(2)]
    await site.port.report([done(grant) for grant in await site.claim(limit=100)])
    loaded = orders.Orders.jobs_to_release
    asked: list[int] = []

    async def meanwhile(self: orders.Orders, ordered: Any, joint: JointDecisions) -> dict[str, Record]:
        found = await loaded(self, ordered := list(ordered), joint)
        asked.append(len(ordered))
        if len(asked) == 1:  # it is so slow that its time for the messages runs out
            site.clock.jump("1h")
            await site.port.services.deliver()
            await site.runs.reconciler.apply_changes()
        return found

    monkeypatch.setattr(orders.Orders, "jobs_to_release", meanwhile)
    await site.runs.reconciler.apply_changes()
    assert asked == [2, 2]
    for run_id in runs:
        assert await site.standing(run_id) == {"a": "COMPLETED", "b": "PENDING"}
    assert await site.all_faults() == []


def jobs_in(commits: Sequence[Commit]) -> list[list[Change]]:
    """Return the changes of jobs in each of these commits."""
    return [[change for change in commit.changes if change.kind == "job"] for commit in commits]


async def test_a_run_of_two_layers_takes_five_commits_beside_those_of_its_jobs(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = commits_from_now_on(site, monkeypatch)
    first, second = [f"a{n}" for n in range(10)], [f"b{n}" for n in range(10)]
    run_id = await site.begin(*(planned(name) for name in first), *(planned(name, "a0") for name in second))
    for _ in range(2):
        given = await site.claim(limit=10)
        await site.port.report([done(grant) for grant in given])
        await site.recover()
    about_run = [commit for commit in seen if any(change.kind == "run" for change in commit.changes)]
    states = [change.state for commit in about_run for change in commit.changes if change.kind == "run"]
    assert states == ["CREATED", "QUEUED", "RUNNING", "SUCCESS", "REPORTED"]
    assert [len(each) for each in jobs_in(about_run)] == [0, 20, 20, 10, 0]
    alone = [each for commit in seen if commit not in about_run for each in commit.changes]
    told = [each.id for each in alone if each.kind == MESSAGE.name and each.state == "sent"]
    assert [name.rpartition(".")[2] for name in told] == ["RUNNING"], "after its first jobs had ended"
    assert (await site.look(run_id)).outcome == "SUCCESS"


async def test_a_job_that_is_cancelled_while_its_run_releases_it_stays_cancelled(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await site.begin(planned("a"), *(planned(f"b{n}", "a", required=n > 0) for n in range(3)))
    names = {name: job_id for job_id, name in (await site.names(run_id)).items()}
    loaded = orders.Orders.jobs_to_release
    canceled: list[str] = []

    async def cancel_first(self: orders.Orders, ordered: Any, joint: JointDecisions) -> dict[str, Record]:
        found = await loaded(self, ordered := list(ordered), joint)
        if any(draft.release for draft, _ in ordered) and not canceled:
            canceled.append(names["b0"])
            await site.jobs.cancel(names["b0"])
        return found

    monkeypatch.setattr(orders.Orders, "jobs_to_release", cancel_first)
    await site.finish(run_id)
    assert canceled
    await site.finish(run_id)
    assert await site.standing(run_id) == {
        "a": "COMPLETED",
        "b0": "CANCELED",
        "b1": "COMPLETED",
        "b2": "COMPLETED",
    }
    assert (await site.look(run_id)).outcome == "SUCCESS"
    assert await site.all_faults() == []


@pytest.mark.parametrize("topic", ["run.plan", "run.report"])
async def test_a_message_that_another_process_took_meanwhile_does_not_hold_its_run(
    site: Site, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    """A process was so slow that its time for the message ran out: the commit cannot count it as sent."""
    view = await site.runs.submit(RunSpec(plan=plan(planned("a"))))
    taken: list[str] = []
    commit = site.store.commit

    async def slow(work: Sequence[Work]) -> list[Outcome]:
        for one in one_by_one(work):
            sent = {change.queue: change.id for change in one.changes if change.state == "sent"}
            if topic in sent and len(one.changes) > 1 and not taken:
                taken.append(sent[topic])
                site.clock.jump("1h")
                await site.port.services.deliver()
                assert len(await site.claim_messages(topic)) == 1
        return await commit(work)

    monkeypatch.setattr(site.store, "commit", slow)
    await site.recover()
    for _ in range(2):
        for grant in (await site.offered(view.id)).values():
            await site.heard(done(grant))
        await site.recover()
    assert taken
    (record,) = await site.store.load([Key("run", view.id)])
    assert record is not None
    planned_at = decode_run(record.body).planned_at
    assert planned_at is not None
    is_later = planned_at - view.created_at >= timedelta(hours=1)
    assert is_later == (topic == "run.plan"), "what is decided again is decided at its own time"
    assert (await site.look(view.id)).state == "REPORTED"
    assert (await site.path(view.id)).count("REPORTED") == 1
    assert await site.all_faults() == []
