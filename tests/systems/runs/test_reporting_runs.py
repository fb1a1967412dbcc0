"""An outcome is reported until it was heard, and then it is REPORTED, once."""

from __future__ import annotations

import asyncio

from tests.systems.runs.site import Site, planned

from interlock.engine.debounce import Debouncer
from interlock.systems.runs.reports.report import DeliveryFailed, RunReport, RunStatus
from interlock.systems.runs.reports.reporter import ReportService
from interlock.wire.runs import RunView


class Reporter:
    """Hears outcomes, except when it is down."""

    name = "team"
    able = True

    def __init__(self, down: int = 0) -> None:
        self.down = down
        self.heard: list[RunView] = []
        self.mentioned: list[str] = []

    def wants(self, run: RunView, word: RunStatus) -> bool:  # noqa: ARG002 - whatever it is
        return True

    def replaces(self, newer: RunView, run: RunView) -> bool:  # noqa: ARG002 - each is told by itself
        return False

    async def deliver(self, report: RunReport, memory: str) -> str:
        if not report.status.final:
            self.mentioned.append(report.run.state)
            raise DeliveryFailed("nobody insists on this")
        if self.down:
            self.down -= 1
            raise OSError("nobody answers")
        self.heard.append(report.run)
        return memory


def tell(site: Site, reporter: Reporter) -> None:
    """Have it told from now on."""
    runs = site.runs
    runs.reporting = ReportService(runs.engine, runs.reporting._runs, runs.reporting.settings, [reporter])


async def test_a_reporter_that_is_down_holds_nothing_but_the_report(site: Site) -> None:
    reporter = Reporter(down=15)
    tell(site, reporter)
    held = await site.begin(planned("a"))
    await site.finish(held)
    view = await site.look(held)
    assert (view.state, view.outcome) == ("SUCCESS", "SUCCESS")
    assert "waits to be reported" in (await site.runs.explain(held)).sentence
    reporter.down = 0
    other = await site.begin(planned("a"))
    await site.finish(other)
    assert (await site.look(other)).state == "REPORTED"
    reporter.down = 12
    for _ in range(14):
        await site.later(4_400)
    assert (await site.look(held)).state == "REPORTED", "however often it was down, it is tried again"
    assert [run.id for run in reporter.heard] == [other, held]
    assert reporter.mentioned == ["QUEUED", "QUEUED"]
    assert [(run.outcome, run.jobs[0].state) for run in reporter.heard] == [("SUCCESS", "COMPLETED")] * 2


async def test_a_report_is_sent_again_if_its_delivery_was_not_recorded_and_the_run_is_reported_once(
    site: Site,
) -> None:
    """The reporter heard it, and then whoever told it died before it could say so."""
    reporter = Reporter()
    tell(site, reporter)
    run_id = await site.begin(planned("a"))
    await site.finish(run_id, sweep=False)
    while await site.runs.reconciler.apply_changes():
        pass
    await site.runs.sweeper.report()
    lane = site.runs.reporting.lanes[0]
    (taken,) = await lane._take()
    view = await site.look(run_id)
    await reporter.deliver(RunReport(run=view, status=RunStatus.SUCCESS, at=view.updated_at), "")
    assert (taken.state, view.state) == ("sending", "SUCCESS")
    await site.later(61)
    assert len(reporter.heard) == 2
    assert (await site.path(run_id)).count("REPORTED") == 1


async def test_a_report_message_claimed_by_a_crashed_process_is_delivered_after_its_claim_expires(
    site: Site,
) -> None:
    reporter = Reporter()
    tell(site, reporter)
    run_id = await site.begin(planned("a"))
    await site.finish(run_id, sweep=False)
    while await site.runs.reconciler.apply_changes():
        pass
    (message,) = await site.claim_messages("run.report")
    assert message.state == "sending"
    await site.later(31)
    assert [run.id for run in reporter.heard] == [run_id]
    assert (await site.look(run_id)).state == "REPORTED"


async def test_a_report_that_was_given_up_is_sent_again_once_on_request(site: Site) -> None:
    reporter = Reporter(down=1_000_000)
    tell(site, reporter)
    run_id = await site.begin(planned("a"))
    await site.finish(run_id)
    assert [view.state for view in await site.runs.report_again(run_id)] == ["waiting"], "it is being told"
    await site.later(4 * 86_400)
    (given_up,) = await site.runs.reports(run_id)
    assert given_up.state == "given_up"
    reporter.down = 0
    for _ in range(2):  # said twice, done once
        views = await site.runs.report_again(run_id)
        assert len(views) == 2
        await site.recover()
    assert [run.id for run in reporter.heard] == [run_id]
    assert [view.state for view in await site.runs.reports(run_id)] == ["given_up", "done"]
    assert [view.state for view in await site.runs.report_again(run_id)] == ["given_up", "done"]
    assert (await site.look(run_id)).state == "REPORTED"
    assert await site.all_faults() == []


async def test_a_sweep_ends_when_nothing_is_under_way_in_the_background(site: Site) -> None:
    ended: list[str] = []

    async def report() -> int:
        for _ in range(20):
            await asyncio.sleep(0)
        ended.append("reported")
        return 0

    async def apply() -> int:
        for _ in range(20):
            await asyncio.sleep(0)
        reports.trigger()
        ended.append("applied")
        return 0

    sweeper = site.runs.sweeper
    reports = sweeper._reports = Debouncer("reports", report)
    changes = sweeper._changes = Debouncer("changes", apply)
    changes.trigger()
    await sweeper.sweep()
    assert ended == ["applied", "reported"]
