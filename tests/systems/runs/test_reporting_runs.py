"""An outcome is reported until it was heard, and then it is REPORTED, once."""

from __future__ import annotations

from tests.systems.runs.site import Site, planned

from interlock.wire.runs import RunView


class Reporter:
    """Hears outcomes, except when it is down."""

    def __init__(self, down: int = 0) -> None:
        self.down = down
        self.heard: list[RunView] = []
        self.mentioned: list[str] = []

    async def report(self, run: RunView) -> None:
        if self.down:
            self.down -= 1
            raise OSError("nobody answers")
        self.heard.append(run)

    async def mention(self, run: RunView) -> None:
        self.mentioned.append(run.state)
        raise OSError("nobody insists on this")


async def test_a_reporter_that_is_down_holds_nothing_but_the_report(site: Site) -> None:
    reporter = Reporter(down=15)
    site.runs.telling.reporters = [reporter]
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
        await site.later(300)
    assert (await site.look(held)).state == "REPORTED", "however often it was down, it is tried again"
    assert [run.id for run in reporter.heard] == [other, held]
    assert reporter.mentioned == ["QUEUED", "QUEUED"]
    assert [(run.outcome, run.jobs[0].state) for run in reporter.heard] == [("SUCCESS", "COMPLETED")] * 2


async def test_a_report_whose_note_was_lost_is_made_again_and_noted_once(site: Site) -> None:
    """The reporter heard it, and then whoever told it died before it could say so."""
    reporter = Reporter()
    site.runs.telling.reporters = [reporter]
    run_id = await site.begin(planned("a"))
    await site.finish(run_id, sweep=False)
    while await site.runs.keeper.hear():
        pass
    (message,) = await site.claim_messages("run.report")
    await reporter.report(await site.look(run_id))
    assert message.state == "sending"
    await site.later(31)
    assert len(reporter.heard) == 2
    assert (await site.path(run_id)).count("REPORTED") == 1
