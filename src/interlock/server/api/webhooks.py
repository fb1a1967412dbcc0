"""Webhooks that start runs. They carry no token: each is signed, and refused unless the signature is good.

Anybody can send one, so whatever the head of a request shows to be no good is refused before its body is
read. Where webhooks are configured, one to a name that is not is answered like one with a bad signature.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from interlock.server.parts import Parts
from interlock.server.requests import check_announced
from interlock.server.routes import Call, Lane, Route
from interlock.systems.runs.trigger_events import TriggerSettings
from interlock.systems.runs.triggers import Receipt, webhook_disabled
from interlock.systems.runs.webhook_security import (
    BadPayload,
    NotSigned,
    WebhookOff,
    check_github,
    check_standard,
)


class GithubEvent(msgspec.Struct, frozen=True):
    """An event as GitHub documents it: push and pull_request start runs, others are accepted and ignored."""


class AnyEvent(msgspec.Struct, frozen=True):
    """A RunSpec, or whatever the settings of the hook can find the parts of one in."""


async def github(call: Call) -> Receipt:
    """A delivery of GitHub."""
    return await call.parts.triggers.github(call.headers, call.body)


async def generic(call: Call) -> Receipt:
    """A delivery of anybody who signs as Standard Webhooks say."""
    return await call.parts.triggers.generic(call.path["name"], call.headers, call.body)


def _settings(parts: Parts) -> TriggerSettings:
    return parts.runtime.settings.runs.triggers


def _most(parts: Parts) -> int:
    return _settings(parts).max_body_bytes


def _before_github(parts: Parts, _: Mapping[str, str], headers: Mapping[str, str]) -> None:
    if not _settings(parts).github_secrets:
        raise webhook_disabled("GitHub")
    if not _GITHUB.fullmatch(headers.get("x-hub-signature-256", "")):
        check_github((), headers, b"")  # raises, in its own words
    check_announced(headers, _most(parts))


def _before_generic(parts: Parts, path: Mapping[str, str], headers: Mapping[str, str]) -> None:
    hooks = {hook.name for hook in _settings(parts).hooks if hook.keys}
    if not hooks:
        raise webhook_disabled(f"the name {path['name'][:100]}")
    if path["name"] not in hooks or not all(headers.get(name) for name in _STANDARD):
        check_standard((), headers, b"", _ANY_TIME)  # raises, in its own words
    check_announced(headers, _most(parts))


_GITHUB = re.compile(r"sha256=[0-9a-fA-F]{64}")
_STANDARD = ("webhook-id", "webhook-timestamp", "webhook-signature")
_ANY_TIME = datetime.fromtimestamp(0, UTC)

_COMMON: dict[str, Any] = {
    "method": "POST",
    "role": None,
    "signed": True,
    "lane": Lane.FREE,
    "answer": Receipt,
    "status": 202,
    "read": bytes,
    "most": _most,
    "errors": (NotSigned, WebhookOff, BadPayload),
    "answer_example": {"accepted": True, "run_id": "r_0123456789ab"},
}

ROUTES = (
    Route(
        path="/api/webhooks/github",
        name="receiveGithubWebhook",
        summary="Take a webhook of GitHub, and start the run that it is a reason for.",
        handler=github,
        before=_before_github,
        bodies=(GithubEvent,),
        example={"ref": "refs/heads/main", "before": "a" * 40, "after": "b" * 40, "repository": {}},
        **_COMMON,
    ),
    Route(
        path="/api/webhooks/generic/{name}",
        name="receiveWebhook",
        summary="Take a signed webhook (Standard Webhooks), and start the run that it asks for.",
        handler=generic,
        before=_before_generic,
        bodies=(AnyEvent,),
        example={"commit": {"id": "b" * 40}, "target": "staging"},
        parameters={"name": "What the settings call the hook."},
        **_COMMON,
    ),
)
