"""Jobs of a run that are alike are decided once; each becomes what it would become alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import pick
from tests.systems.orchestrator.house import done
from tests.systems.runs.site import Site, planned

from interlock.engine.outbox import MESSAGE, message_in
from interlock.store.records import Change, Commit, Key, Query, Record, one_by_one, record_after
from interlock.systems.orchestrator import grants, runner_messages
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.body import (
    JobGiven,
    PlanPlace,
    Provenance,
    RunPart,
    decode_body,
    encode_body,
    encode_given,
    given_of,
)
from interlock.systems.orchestrator.cancellation import commit_of
from interlock.systems.orchestrator.grants import ClaimInput, offer_of, offers_of
from interlock.systems.orchestrator.notifications import (
    RUN_JOBS,
    RUN_JOBS_TOGETHER,
    JobChanged,
    JobsChanged,
)
from interlock.systems.orchestrator.runner_messages import (
    Report,
    decide_completions,
    decide_message,
    result_in,
)
from interlock.systems.orchestrator.shapes import ANY_RUN, common_change, of_any_run, of_run, shape_of
from interlock.systems.orchestrator.tokens import digest_of, read_token
from interlock.systems.runs import new_jobs as new_jobs_module
from interlock.systems.runs import orders
from interlock.systems.runs.body import RunBody
from interlock.systems.runs.new_jobs import (
    RELEASE,
    JobOrder,
    NewRunJob,
    created_together,
)
from interlock.systems.runs.orders import (
    decide_order,
    released_together,
)
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import ClaimRequest, Heard
from interlock.wire.runs import PlannedApproval

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
RUN_ID, SECRET = "r_000000000001", "1" * 32
RUN_IDS = (RUN_ID, "r_000000000002", "r_3")
ORDER = JobOrder(run_id=RUN_ID, pieces=1, what=RELEASE, places=())


SPECS = st.builds(
    JobSpec,
    task=st.sampled_from(["build", "test"]),
    priority=st.sampled_from([0, 2]),
    limits=st.sampled_from([(), (), ("disk",)]),
    timeout_s=st.sampled_from([None, 60.0]),
)
PARTS = st.builds(
    RunPart,
    run_id=st.sampled_from(RUN_IDS),
    required=st.booleans(),
    root=st.booleans(),
    approval=st.sampled_from([None, None, PlannedApproval(question="Now?")]),
)
ORIGINS = st.sampled_from([None, Provenance(ref="main")])


@st.composite
def new_jobs(draw: st.DrawFn, /, **common: Any) -> list[NewRunJob]:
    """Up to nine jobs of a plan, of up to three kinds, with something in common."""
    kinds = draw(st.lists(st.tuples(SPECS, PARTS, ORIGINS, st.booleans()), min_size=1, max_size=3))
    drawn = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=9))
    new = [
        NewRunJob(
            id=f"j_{place}",
            spec=msgspec.structs.replace(spec, input=msgspec.Raw(b"[%d]" % place)),
            plan=PlanPlace(place, f"job {place}"),
            part=part,
            origin=origin,
            held=held,
        )
        for place, (spec, part, origin, held) in enumerate(drawn)
    ]
    if not common:
        return new
    plain = [msgspec.structs.replace(each.part, approval=None) for each in new]
    return [msgspec.structs.replace(each, part=part, **common) for each, part in zip(new, plain, strict=True)]


def created(new: NewRunJob) -> Record:
    """Return the job in the store."""
    draft = new.draft(NOW - timedelta(seconds=9), DEFAULT_SETTINGS)
    return record_after(draft.change(commit_id="m", actor="a"), None, NOW - timedelta(seconds=9))


def changes_in(commits: list[Commit]) -> tuple[dict[str, Change], set[tuple[str, str, int]]]:
    """Return the changes of jobs by their id, and what runs are told of which places."""
    changes: dict[str, Change] = {}
    news: set[tuple[str, str, int]] = set()
    for change in (change for commit in commits for change in commit.changes):
        if change.kind != MESSAGE.name:
            changes[change.id] = change
            continue
        kinds: dict[str | None, Any] = {RUN_JOBS: JobChanged, RUN_JOBS_TOGETHER: JobsChanged}
        news |= {
            (one.run_id, one.target, one.place) for one in message_in(change.body, kinds[change.queue]).each
        }
    return changes, news


@settings(max_examples=pick(80, 300), deadline=None, derandomize=True)
@given(new_jobs())
def test_jobs_created_in_a_batch_equal_the_same_jobs_created_one_by_one(new: list[NewRunJob]) -> None:
    batches = created_together(new, NOW, "m", DEFAULT_SETTINGS)
    together = {commit.changes[0].id: commit for commit in one_by_one(batches)}
    for each in new:
        alone = commit_of(each.draft(NOW, DEFAULT_SETTINGS), commit_id="m", actor="orchestrator")
        if each.id in together:
            assert together[each.id] == alone
        else:
            same = [other for other in new if other.shape == each.shape]
            assert len(same) == 1 or len(alone.changes) > 1 or each.part.approval is not None


@settings(max_examples=pick(80, 300), deadline=None, derandomize=True)
@given(new_jobs(held=True))
def test_jobs_released_in_a_batch_equal_the_same_jobs_released_one_by_one(new: list[NewRunJob]) -> None:
    records = [created(each) for each in new]
    batches = released_together(records, ORDER, NOW, "m", DEFAULT_SETTINGS)
    together = {commit.changes[0].id: commit for commit in one_by_one(batches)}
    for record in records:
        draft = JobAggregate.of(record, NOW, DEFAULT_SETTINGS)
        decide_order(ORDER, draft)
        alone = commit_of(draft, commit_id="m", actor="orchestrator")
        if record.id in together:
            seen = msgspec.structs.replace(alone.changes[0], expected_at=record.updated_at)
            assert together[record.id].changes == (seen,)


@settings(max_examples=pick(80, 300), deadline=None, derandomize=True)
@given(new_jobs(held=False), st.booleans())
def test_jobs_granted_and_completed_in_a_batch_equal_the_same_jobs_processed_one_by_one(
    new: list[NewRunJob], acknowledge: bool
) -> None:
    records = [created(each) for each in new if not each.spec.limits]
    request = ClaimRequest(runner_id="r#1", limit=100, acknowledge=acknowledge)
    claim = ClaimInput(request, SECRET, digest_of(SECRET), 1, "m", DEFAULT_SETTINGS, 1 << 20)
    offers = offers_of(claim, records, NOW)
    alone = [offer for record in records if (offer := offer_of(claim, record, NOW)) is not None]
    granted, news = changes_in(one_by_one([offer.work for offer in offers]))
    granted_alone, news_alone = changes_in(one_by_one([offer.work for offer in alone]))
    assert granted == granted_alone
    assert {(run_id, target) for run_id, target, _ in news} == {each[:2] for each in news_alone}, "it begins"
    for offer in offers if acknowledge else ():
        running = [record_after(granted[before.id], before, NOW) for before in offer.before]
        reports = [done(grant, b"%d" % place, runner_id="r#1") for place, grant in enumerate(offer.grants)]
        token, at = read_token(reports[0].token), NOW + timedelta(seconds=1)
        assert token is not None
        like = of_any_run(running[0])
        decided = decide_completions(Report(1, "r#1", None), token, like, at, "m", DEFAULT_SETTINGS)
        assert decided is not None
        results = [result_in(report, report.token, DEFAULT_SETTINGS) or b"" for report in reports]
        work = decided.work(running, [record.updated_at for record in running], results, at)
        commits = []
        for record, report in zip(running, reports, strict=True):
            own = read_token(report.token)
            assert own is not None
            decision = decide_message(record, own, report, at, "m", DEFAULT_SETTINGS)
            assert decision.answer == decided.answer
            assert decision.commit is not None
            own_change = msgspec.structs.replace(decision.commit.changes[0], expected_at=record.updated_at)
            commits.append(
                msgspec.structs.replace(decision.commit, changes=(own_change, *decision.commit.changes[1:]))
            )
        assert changes_in(one_by_one([work])) == changes_in(commits)
        assert {commit.not_after for commit in one_by_one([work])} == {each.not_after for each in commits}


def held(run_id: str, task: str = "build") -> Record:
    """A job of this run that waits for others, written at a time that is the same in all runs."""
    new = NewRunJob("j_1", JobSpec(task=task), PlanPlace(0, "a"), RunPart(run_id=run_id), None, held=True)
    return created(new)


def test_jobs_of_two_runs_have_one_shape_and_the_decision_about_it_becomes_that_about_each() -> None:
    alone = []
    for run_id in RUN_IDS[:2]:
        draft = JobAggregate.of(held(run_id), NOW, DEFAULT_SETTINGS)
        decide_order(ORDER, draft)
        alone.append(commit_of(draft, commit_id="m", actor="orchestrator").changes[0])
    first, second = (of_any_run(held(run_id)) for run_id in RUN_IDS[:2])
    assert shape_of(first) == shape_of(second)
    assert first.parent == ANY_RUN
    draft = JobAggregate.of(msgspec.structs.replace(first, id="j_1"), NOW, DEFAULT_SETTINGS)
    decide_order(ORDER, draft)
    decided = commit_of(draft, commit_id="m", actor="orchestrator").changes[0]
    assert [of_run(decided, run_id) for run_id in RUN_IDS[:2]] == alone


@pytest.mark.parametrize(
    "record",
    [
        held("r_3"),
        held(RUN_ID, task=f"build {RUN_ID}"),
        held(RUN_ID, task=f"build {ANY_RUN}"),
        msgspec.structs.replace(held(RUN_ID), parent=RUN_IDS[1]),
        msgspec.structs.replace(held(RUN_ID), parent=None),
    ],
)
def test_a_job_in_whose_body_its_run_cannot_be_replaced_is_like_those_of_its_own_run_only(
    record: Record,
) -> None:
    assert of_any_run(record) is record


def test_a_decision_that_writes_the_run_elsewhere_does_not_hold_for_all_runs() -> None:
    change = JobAggregate.of(of_any_run(held(RUN_ID)), NOW, DEFAULT_SETTINGS).change(commit_id="m")
    assert common_change(Commit(changes=(change,))) is not None
    elsewhere = msgspec.structs.replace(change, labels=(ANY_RUN,))
    assert common_change(Commit(changes=(elsewhere,))) is None


async def test_jobs_of_many_runs_are_granted_and_completed_by_one_decision(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided: list[str] = []
    for module, name in ((grants, "_granted"), (runner_messages, "decide_message")):
        original = getattr(module, name)

        def count(*given: Any, name: str = name, original: Any = original, **named: Any) -> Any:
            decided.append(name)
            return original(*given, **named)

        monkeypatch.setattr(module, name, count)
    jobs = (*(planned(f"a{n}") for n in range(3)), planned("b", "a0", "a1", "a2"))
    runs = [await site.begin(*jobs) for _ in range(4)]
    given = await site.claim(limit=100)
    assert len(given) == 12
    answers = await site.port.report([done(grant) for grant in given])
    assert [type(answer) for answer in answers] == [Heard] * 12
    assert decided == ["_granted", "decide_message"]
    await site.recover()
    given = await site.claim(limit=100)
    assert len(given) == 4
    await site.port.report([done(grant) for grant in given])
    await site.recover()
    for run_id in runs:
        assert (await site.look(run_id)).outcome == "SUCCESS"
    assert await site.all_faults() == []


async def messages(site: Site) -> list[str]:
    """Return the topics of the messages to runs."""
    page = await site.store.find(Query(kind=MESSAGE.name, limit=100))
    return sorted(each.queue for each in page.records if each.queue in (RUN_JOBS, RUN_JOBS_TOGETHER))


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_layer_of_a_run_takes_one_decision_for_each_of_its_steps(
    site: Site, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    if not at_once:
        site.by_messages()
    decided: list[str] = []

    def counted(module: Any, name: str) -> None:
        original = getattr(module, name)

        def count(*given: Any, **named: Any) -> Any:
            decided.append(name)
            return original(*given, **named)

        monkeypatch.setattr(module, name, count)

    counted(new_jobs_module, "new_job")
    counted(orders, "decide_order")
    counted(grants, "_granted")
    counted(runner_messages, "decide_message")
    first, second = [f"a{n}" for n in range(9)], [f"b{n}" for n in range(9)]
    run_id = await site.begin(*(planned(name) for name in first), *(planned(name, "a0") for name in second))
    assert decided == ["new_job", "new_job"]
    for steps in (["_granted", "decide_message", "decide_order"], ["_granted", "decide_message"]):
        decided.clear()
        given = await site.claim(limit=9)
        assert len(given) == 9
        answers = await site.port.report([done(grant) for grant in given])
        assert [type(answer) for answer in answers] == [Heard] * 9
        await site.recover()
        assert decided == steps
    assert await messages(site) == [RUN_JOBS, *(() if at_once else [RUN_JOBS_TOGETHER] * 2)]
    assert (await site.look(run_id)).outcome == "SUCCESS"
    assert await site.all_faults() == []


async def test_one_job_of_a_layer_may_be_cancelled_while_the_others_are_completed(site: Site) -> None:
    names = [f"a{n}" for n in range(6)]
    run_id = await site.begin(
        *(planned(name, required=name != "a2") for name in names), *(planned(f"b{n}") for n in range(2))
    )
    given = await site.offered(run_id)
    assert len(given) == 8
    await site.jobs.cancel(given["a4"].job_id)
    answers = await site.port.report([done(grant) for grant in given.values()])
    assert all(isinstance(answer, Heard) for answer in answers)
    await site.recover(3)
    assert await site.standing(run_id) == {
        **dict.fromkeys([*names, "b0", "b1"], "COMPLETED"),
        "a4": "CANCELED",
    }
    view = await site.look(run_id)
    assert (view.outcome, view.tally) == ("FAILED", {"COMPLETED": 7, "CANCELED": 1})
    assert await site.all_faults() == []


async def test_a_job_of_a_layer_whose_id_is_already_taken_receives_a_new_id(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = orders.Orders.carry_out
    squatted: list[str] = []

    async def squat_first(self: orders.Orders, order: JobOrder, body: RunBody | None = None) -> None:
        graph = await self._plans.graph(order.run_id, order.pieces)
        if graph is not None and not squatted:
            squatted.append(graph.ids[order.places[3]])
            await site.squat(squatted[0])
        await original(self, order, body)

    monkeypatch.setattr(orders, "MOST_WITHIN", 0)
    monkeypatch.setattr(orders.Orders, "carry_out", squat_first)
    run_id = await site.begin(*(planned(f"a{n}") for n in range(6)))
    names = await site.names(run_id)
    assert sorted(names.values()) == [f"a{n}" for n in range(6)]
    assert squatted[0] not in names
    given = await site.claim(limit=9, queues=("default",))
    await site.port.report([done(grant) for grant in given])
    await site.recover(3)
    assert (await site.look(run_id)).outcome == "SUCCESS"


async def test_a_job_stored_in_the_old_format_notifies_its_run_with_the_place_from_its_body(
    site: Site,
) -> None:
    """Jobs used to have their place in the body; a store may be full of them."""
    run_id = await site.begin(*(planned(f"a{n}") for n in range(3)))
    given = await site.offered(run_id)
    answers = []
    for name, grant in given.items():
        (record,) = await site.store.load([Key("job", grant.job_id)])
        assert record is not None
        body, plan = decode_body(record.body), given_of(record).plan
        assert body.run is not None
        assert plan is not None
        assert plan.name == name
        body.run = msgspec.structs.replace(body.run, place=plan.place)
        old = msgspec.structs.replace(
            record, body=encode_body(body), given=encode_given(JobGiven(given_of(record).input))
        )
        token, report = read_token(grant.token), done(grant)
        assert token is not None
        decision = decide_message(old, token, report, site.clock(), "m", site.settings)
        assert decision.commit is not None
        (message,) = decision.commit.changes[1:]
        answers.append(message_in(message.body, JobChanged).place == plan.place)
    assert answers == [True] * 3
