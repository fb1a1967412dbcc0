"""Outcomes are told to everybody who is to know, once, in order, and without holding anything up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from itertools import pairwise

import pytest
from msgspec.structs import replace
from tests.systems.orchestrator.house import done
from tests.systems.runs.reports.receiver import Heard, Receiver, Says
from tests.systems.runs.reports.told import SOURCE, Told, notices, reporting, statuses
from tests.systems.runs.site import plan, planned

from interlock.engine.committer import Committer
from interlock.errors import InterlockError
from interlock.store.records import Commit, Key, Outcome, Work
from interlock.systems.runs.reports.report import DONE, REPORT, STATUSES, RunReport, report_id
from interlock.systems.runs.reports.summary import in_words
from interlock.systems.runs.settings import ReportingSettings
from interlock.wire.jobs import SHELL
from interlock.wire.runs import RunSpec, RunView


@pytest.fixture
async def site(receiver: Receiver) -> AsyncIterator[Told]:
    """GitHub and a team are told."""
    opened = Told(reporting(receiver))
    await opened.open()
    yield opened
    assert await opened.all_faults() == []
    await opened.close()


async def test_a_run_sends_status_updates_and_is_reported_after_every_reporter_has_its_outcome(
    site: Told, receiver: Receiver
) -> None:
    run_id = await site.begin(planned("a"), planned("b", "a"), source=SOURCE)
    await site.finish(run_id)
    await site.finish(run_id)
    await site.recover()
    assert statuses(receiver) == ["pending", "pending", "success"]
    assert notices(receiver) == ["run.success"]
    assert await site.state(run_id) == "REPORTED"
    assert (await site.report(run_id, "github")).state == "done"
    assert (await site.path(run_id)).count("REPORTED") == 1


async def test_a_run_that_waits_for_an_approval_is_reported_as_one(site: Told, receiver: Receiver) -> None:
    run_id = await site.begin(planned("a", task=SHELL), source=replace(SOURCE, from_fork=True))
    await site.recover()
    await site.runs.approve(run_id)
    await site.recover(2)
    descriptions = [request.said["description"] for request in receiver.heard if "/statuses/" in request.path]
    assert descriptions == ["Waiting for approval: 1 job", "Waiting for runners: 1 job"]
    assert statuses(receiver) == ["pending", "pending"]


async def test_a_reporter_that_is_down_holds_neither_the_run_nor_another_report(
    site: Told, receiver: Receiver
) -> None:
    receiver.otherwise = lambda request: Says(500 if "/statuses/" in request.path else 200)
    run_id = await site.one_job()
    await site.finish(run_id)
    await site.recover()
    view = await site.look(run_id)
    assert (view.state, view.outcome) == ("SUCCESS", "SUCCESS")
    assert notices(receiver) == ["run.success"]
    report = await site.report(run_id, "github")
    assert (report.state, report.tries, report.last_error) == ("waiting", 1, "GitHub answered 500")
    assert report.next_try_at is not None
    before = len(statuses(receiver))
    await site.recover()
    assert len(statuses(receiver)) == before  # not before its time
    receiver.otherwise = lambda _: Says()
    site.clock.jump("10s")
    await site.recover()
    assert statuses(receiver)[before:] == ["success"]
    assert await site.state(run_id) == "REPORTED"
    assert notices(receiver) == ["run.success"]


async def test_pauses_grow_and_a_receiver_is_given_up_on_in_the_end(site: Told, receiver: Receiver) -> None:
    receiver.otherwise = lambda request: Says(500 if "/statuses/" in request.path else 200)
    run_id = await site.one_job()
    await site.finish(run_id)
    await site.recover()
    pauses: list[timedelta] = []
    for _ in range(12):
        report = await site.report(run_id, "github")
        assert report.next_try_at is not None
        pauses.append(report.next_try_at - report.updated_at)
        site.clock.jump(report.next_try_at - site.clock())
        await site.recover()
    assert pauses[0] < timedelta(seconds=7)
    assert all(later > earlier * 1.2 for earlier, later in pairwise(pauses[:9]))
    assert max(pauses) <= timedelta(hours=1.2)
    assert await site.state(run_id) == "SUCCESS"
    site.clock.jump("3d")
    await site.recover()
    assert (await site.report(run_id, "github")).state == "given_up"
    assert await site.state(run_id) == "REPORTED"


async def test_a_report_that_github_refuses_with_422_is_given_up_without_a_retry_and_keeps_its_error(
    site: Told, receiver: Receiver
) -> None:
    gone = Says(422, {"message": "No commit found for SHA"})
    receiver.otherwise = lambda request: gone if "/statuses/" in request.path else Says()
    run_id = await site.one_job()
    await site.finish(run_id, "test")
    await site.recover()
    report = await site.report(run_id, "github")
    assert (report.state, report.last_error) == ("given_up", "GitHub answered 422: No commit found for SHA")
    assert await site.state(run_id) == "REPORTED"
    assert notices(receiver) == ["run.failed"]


class Together:
    """Lets two reports be decided to have ended before either is committed."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._barrier = asyncio.Barrier(2)
        self.met = 0

    async def commit(self, commit: Commit) -> Outcome:
        """Wait for the other one, the first time."""
        if self.met < 2 and any(c.kind == REPORT.name and c.state == DONE for c in commit.changes):
            self.met += 1
            await self._barrier.wait()
        return await self._committer.commit(commit)

    async def commit_all(self, work: Sequence[Work]) -> list[Outcome | InterlockError]:
        """As ever."""
        return await self._committer.commit_all(work)


async def test_two_reports_that_end_at_the_same_instant_leave_a_reported_run(
    site: Told, receiver: Receiver
) -> None:
    run_id = await site.one_job()
    await site.heard(done((await site.offered(run_id))["test"]))
    await site.runs.reconciler.apply_changes()
    await site.runs.sweeper.report()
    engine = site.port.services.engine
    together = engine.committer = Together(engine.committer)
    await asyncio.gather(*[lane.round() for lane in site.runs.reporting.lanes])
    assert together.met == 2
    assert await site.state(run_id) == "REPORTED"
    assert (await site.path(run_id)).count("REPORTED") == 1


async def test_a_github_rate_limit_pauses_the_statuses_of_all_runs_until_retry_after(
    site: Told, receiver: Receiver
) -> None:
    now = 0.0
    site.lane("github")._monotonic = lambda: now
    limited = Says(403, {"message": "You have exceeded a secondary rate limit"}, {"Retry-After": "90"})
    receiver.otherwise = lambda received: limited if "/statuses/" in received.path else Says()
    first = await site.one_job(concurrency_group="")
    received = len(statuses(receiver))
    assert received == 1
    receiver.otherwise = lambda _: Says()
    second = await site.one_job(concurrency_group="")
    for given in await site.claim():
        await site.heard(done(given))
    site.clock.jump("80s")
    await site.recover()
    assert len(statuses(receiver)) == received
    assert sorted(notices(receiver)) == ["run.success", "run.success"]
    now = 91.0
    await site.recover()
    await site.recover()
    assert [await site.state(run_id) for run_id in (first, second)] == ["REPORTED", "REPORTED"]


async def test_an_outcome_is_never_followed_by_how_the_run_stood_before(
    site: Told, receiver: Receiver
) -> None:
    """While "pending" is on its way, slowly, the run ends; the outcome waits, and comes last."""
    held, go_on = asyncio.Event(), asyncio.Event()

    async def hold(request: Heard) -> None:
        if b"Waiting" in request.body:
            held.set()
            await go_on.wait()

    receiver.before = hold
    site.runs.prompt = True
    run_id = (await site.runs.submit(RunSpec(plan=plan(planned("test")), source=SOURCE))).id
    await held.wait()
    site.runs.prompt = False
    await site.finish(run_id)
    other = await site.runs.reporting.reports_of(run_id)
    assert {report.reporter: report.state for report in other}["github"] == "sending"
    assert await site.lane("github").round() == 0  # nobody else may tell it meanwhile
    go_on.set()
    site.runs.prompt = True
    site.runs.nudge()
    async with asyncio.timeout(60):
        while await site.state(run_id) != "REPORTED":
            site.runs.nudge()
            await asyncio.sleep(0)
    assert statuses(receiver) == ["pending", "success"]


async def test_a_report_claimed_by_a_crashed_process_is_sent_after_the_claim_expires(
    site: Told, receiver: Receiver
) -> None:
    receiver.otherwise = lambda request: Says(500 if b"success" in request.body else 200)
    run_id = await site.one_job()
    await site.finish(run_id)
    await site.recover()
    site.clock.jump("10s")
    taken = await site.lane("github")._take()
    assert [record.parent for record in taken] == [run_id]
    receiver.otherwise = lambda _: Says()
    await site.recover()
    assert (await site.report(run_id, "github")).state == "sending"
    site.clock.jump("61s")
    await site.recover()
    await site.recover()
    assert await site.state(run_id) == "REPORTED"


async def test_a_sender_whose_claim_expired_does_not_change_a_report_that_was_claimed_again(
    site: Told, receiver: Receiver
) -> None:
    receiver.otherwise = lambda request: Says(500 if b"success" in request.body else 200)
    run_id = await site.one_job()
    await site.finish(run_id)
    site.clock.jump("10s")
    (late,) = await site.lane("github")._take()
    site.clock.jump("61s")
    await site.runs.sweeper.fire_deadlines()
    (again,) = await site.lane("github")._take()
    await site.lane("github")._handle(late)
    (record,) = await site.store.load([Key(REPORT.name, report_id(run_id, "github"))])
    assert record is not None
    assert (record.state, record.version) == ("sending", again.version)
    site.clock.jump("61s")
    receiver.otherwise = lambda _: Says()
    await site.recover()
    await site.recover()
    assert await site.state(run_id) == "REPORTED"


async def test_a_process_without_the_github_token_leaves_its_reports_to_a_process_with_the_token(
    receiver: Receiver,
) -> None:
    without = Told(reporting(receiver, token=False))
    await without.open()
    run_id = await without.one_job()
    await without.finish(run_id)
    await without.recover()
    assert (statuses(receiver), notices(receiver)) == ([], ["run.success"])
    assert await without.state(run_id) == "SUCCESS"
    store = without.store
    other = Told(reporting(receiver), store=lambda: store, clock=without.clock)
    await other.open()
    await other.recover()
    assert statuses(receiver) == ["success"]
    assert await other.state(run_id) == "REPORTED"
    for one in (other, without):
        await one.close()


async def test_a_reporter_that_is_not_configured_any_more_does_not_hold_the_run(receiver: Receiver) -> None:
    first = Told(reporting(receiver))
    await first.open()
    run_id = await first.one_job()
    store = first.store
    later = Told(reporting(receiver, token=False, team=True), store=lambda: store, clock=first.clock)
    await later.open()
    later.runs.reporting.reporters = later.runs.reporting.reporters[1:]
    await later.finish(run_id)
    await later.recover()
    assert (await later.report(run_id, "github")).state == "dropped"
    assert await later.state(run_id) == "REPORTED"
    for one in (later, first):
        await one.close()


async def test_the_outcome_of_a_run_is_logged_if_no_reporter_is_configured(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Told(ReportingSettings())
    await site.open()
    with caplog.at_level("INFO", logger="interlock.runs"):
        run_id = await site.one_job()
        await site.finish(run_id, "test")
    assert await site.state(run_id) == "REPORTED"
    assert f"run {run_id} (-) of acme/shop refs/heads/main bbbbbbbbbbbb: Failed: test" in caplog.text
    await site.close()


@pytest.mark.parametrize(
    ("failing", "words", "reads_jobs"),
    [
        ((), "Succeeded: 2 jobs", False),
        (("lint",), "Succeeded: 2 jobs", False),
        (("test",), "Failed: test", True),
    ],
)
async def test_without_reporters_the_jobs_of_a_run_are_loaded_only_if_the_run_failed(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    failing: tuple[str, ...],
    words: str,
    reads_jobs: bool,
) -> None:
    site = Told(ReportingSettings())
    await site.open()
    read: list[str] = []
    view = site.runs.reporting._runs.view

    async def noted(run_id: str) -> RunView:
        read.append(run_id)
        return await view(run_id)

    monkeypatch.setattr(site.runs.reporting._runs, "view", noted)
    with caplog.at_level("INFO", logger="interlock.runs"):
        run_id = await site.begin(planned("test"), planned("lint", required=False), source=SOURCE)
        await site.finish(run_id, *failing)
    assert await site.state(run_id) == "REPORTED"
    assert read == [run_id] * reads_jobs
    logged = caplog.messages[-1]
    assert words in logged
    whole = await view(run_id)
    report = RunReport(run=whole, status=STATUSES[whole.outcome or ""], at=whole.updated_at)
    assert logged.endswith(in_words(report))
    await site.close()
