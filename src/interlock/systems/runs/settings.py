"""Settings of runs: the triggers that may start them, and the reporters that are notified about them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Literal, TypeAlias

import msgspec

from interlock.backoff import jittered_s, nth_pause_s
from interlock.errors import InvalidSettings
from interlock.systems.runs.reports.report import LONG_ENOUGH, PATIENCE
from interlock.systems.runs.trigger_events import TriggerSettings
from interlock.systems.runs.webhook_security import Secret

API = "https://api.github.com"
CONTEXT = "interlock/{workflow}/{event}"
"""Name of the status; with the event, because push and pull request of a commit have separate ones."""
Statuses: TypeAlias = Literal["run", "workflow", "job"]
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")


class GithubReporting(msgspec.Struct, frozen=True, kw_only=True):
    """A commit status, or a check, on GitHub."""

    name: str = "github"
    token: Secret | None = None
    """None: this process cannot report; another one may."""
    api: str = API
    context: str = CONTEXT
    """The name of the status of a run. Those of its workflows and jobs are below it, after a slash."""
    statuses: Statuses = "workflow"
    """`run`: one status; `workflow`: also one for each workflow file, if there are several; `job`: also one
    for each job.
    """
    check: bool = False
    """Use a check run instead of a commit status; this requires the token of a GitHub App."""
    repository: str = "*"


class WebhookReporting(msgspec.Struct, frozen=True, kw_only=True):
    """A signed webhook (Standard Webhooks) to a receiver."""

    name: str
    url: str
    keys: tuple[Secret, ...] = ()
    """Empty: this process cannot report; another one may."""
    words: tuple[str, ...] = ("success", "failed", "canceled", "timeout")
    """The reported statuses; `pending` and `running` only if they are named."""
    repository: str = "*"
    allow: tuple[str, ...] = ()
    """Networks that are not public and are allowed: `10.0.0.0/8`, `127.0.0.1`."""


class ReportingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The reporters and their retry settings; outcomes are logged in any case."""

    github: tuple[GithubReporting, ...] = ()
    webhooks: tuple[WebhookReporting, ...] = ()
    public_url: str = ""
    """URL of this server for people; links in reports begin with it."""
    request_s: float = 10.0
    """Deadline of one request."""
    at_once: int = 8
    """Number of concurrent requests of one reporter."""
    telling_s: float = PATIENCE.seconds
    report_for_s: float = LONG_ENOUGH.seconds
    first_pause_s: float = 5.0
    longest_pause_s: float = 3_600.0

    def __post_init__(self) -> None:
        if faults := list(_faults(self)):
            raise InvalidSettings(
                "The reporters cannot be used: " + "; ".join(faults) + ".",
                todo="Change the settings so that each of these holds.",
                facts={"faults": faults},
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all reporters, without the log."""
        return (*(one.name for one in self.github), *(one.name for one in self.webhooks))

    def pause_after(self, tries: int, salt: str) -> timedelta:
        """Return the exponential pause before the next try, with 20 % jitter."""
        pause_s = nth_pause_s(tries, self.first_pause_s, self.longest_pause_s)
        return timedelta(seconds=jittered_s(pause_s, f"{salt}:{tries}", least=0.8, span=0.4))


def _faults(settings: ReportingSettings) -> list[str]:
    names = settings.names
    faults = [f"{name!r} is not the name of a reporter" for name in names if not _NAME.fullmatch(name)]
    faults += [f"there are two reporters {name}" for name in sorted(set(names)) if names.count(name) > 1]
    faults += ["log is the name of the built-in reporter"] if "log" in names else []
    for name in ("request_s", "at_once", "telling_s", "report_for_s", "first_pause_s", "longest_pause_s"):
        if getattr(settings, name) <= 0:
            faults.append(f"{name} must be more than 0")
    if settings.request_s >= settings.telling_s:
        faults.append(
            "request_s must be less than telling_s, or two senders may deliver the same report at once"
        )
    return faults


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Triggers and reporters of runs."""

    triggers: TriggerSettings = TriggerSettings()
    reporting: ReportingSettings = ReportingSettings()
    lacking: tuple[str, ...] = ()
    """Messages about configured parts without a secret in this process; other processes may have it."""
