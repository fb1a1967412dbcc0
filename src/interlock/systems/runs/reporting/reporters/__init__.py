"""Those who tell: GitHub, signed webhooks, and the log."""

from __future__ import annotations

from interlock.systems.runs.reporting.port import Reporter
from interlock.systems.runs.reporting.reporters.github import GithubReporter
from interlock.systems.runs.reporting.reporters.webhook import WebhookReporter
from interlock.systems.runs.reporting.settings import ReportingSettings


def reporters_of(settings: ReportingSettings) -> tuple[Reporter, ...]:
    """Everybody who is configured, whether or not this process has what they need."""
    return (
        *(GithubReporter(one, timeout_s=settings.request_s) for one in settings.github),
        *(WebhookReporter(one, timeout_s=settings.request_s) for one in settings.webhooks),
    )
