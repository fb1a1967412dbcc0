"""A site whose runs are told to a receiver, as GitHub and as a team's webhook."""

from __future__ import annotations

from typing import Any

from tests.systems.runs.reports.receiver import Receiver
from tests.systems.runs.site import Site, planned

from interlock.systems.runs.reports.delivery import ReporterQueue
from interlock.systems.runs.settings import (
    GithubReporting,
    ReportingSettings,
    RunSettings,
    WebhookReporting,
)
from interlock.systems.runs.webhook_security import Secret
from interlock.systems.settings import Settings
from interlock.wire.runs import ReportView, Source

SOURCE = Source(repository="acme/shop", ref="refs/heads/main", sha="b" * 40, event="push")


def reporting(receiver: Receiver, *, token: bool = True, team: bool = True, **more: Any) -> ReportingSettings:
    """Both of them, at one receiver."""
    webhook = WebhookReporting(
        name="team", url=f"{receiver.url}/team", keys=(Secret(b"k" * 32),), allow=("127.0.0.0/8",)
    )
    github = GithubReporting(token=Secret(b"ghp_secret") if token else None, api=receiver.url)
    return ReportingSettings(github=(github,), webhooks=(webhook,) if team else (), **more)


class Told(Site):
    """A site that tells."""

    def __init__(self, settings: ReportingSettings, **more: Any) -> None:
        super().__init__(Settings(runs=RunSettings(reporting=settings)), **more)

    async def one_job(self, **spec: Any) -> str:
        """A run of one job, planned."""
        return await self.begin(planned("test"), **{"source": SOURCE, **spec})

    def lane(self, name: str) -> ReporterQueue:
        """The lane of a reporter."""
        return next(lane for lane in self.runs.reporting.lanes if lane.name == name)

    async def report(self, run_id: str, name: str) -> ReportView:
        """How far a reporter is."""
        found = await self.runs.reporting.reports_of(run_id)
        return next(report for report in found if report.reporter == name)

    async def state(self, run_id: str) -> str:
        """Where the run stands."""
        return (await self.look(run_id)).state


def statuses(receiver: Receiver) -> list[str]:
    """What GitHub was told."""
    return [request.said["state"] for request in receiver.heard if "/statuses/" in request.path]


def notices(receiver: Receiver) -> list[str]:
    """What the team was told."""
    return [request.said["type"] for request in receiver.heard if request.path == "/team"]
