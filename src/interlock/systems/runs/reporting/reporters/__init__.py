"""Those who tell: GitHub, signed webhooks, and the log."""

from __future__ import annotations

from interlock.systems.runs.reporting.port import Now, Reporter
from interlock.systems.runs.reporting.reporters.github import GithubReporter
from interlock.systems.runs.reporting.reporters.webhook import WebhookReporter
from interlock.systems.runs.reporting.settings import ReportingSettings


def reporters_of(settings: ReportingSettings, now: Now) -> tuple[Reporter, ...]:
    """Everybody who is configured, whether or not this process has what they need."""
    return (
        *(GithubReporter(one, now, timeout_s=settings.request_s) for one in settings.github),
        *(WebhookReporter(one, now, timeout_s=settings.request_s) for one in settings.webhooks),
    )
