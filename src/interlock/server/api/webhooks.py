"""Webhooks that start runs. They carry no token: each is signed, and refused unless the signature is good."""

from __future__ import annotations

from typing import Any

import msgspec

from interlock.server.declaring import Call, Lane, Route
from interlock.server.parts import Parts
from interlock.systems.runs.triggers.errors import BadPayload, NotSigned, WebhookOff
from interlock.systems.runs.triggers.receiving import Receipt


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


def _most(parts: Parts) -> int:
    return parts.household.orchestrator.settings.edges.triggers.max_body_bytes


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
        bodies=(GithubEvent,),
        example={"ref": "refs/heads/main", "before": "a" * 40, "after": "b" * 40, "repository": {}},
        **_COMMON,
    ),
    Route(
        path="/api/webhooks/generic/{name}",
        name="receiveWebhook",
        summary="Take a signed webhook (Standard Webhooks), and start the run that it asks for.",
        handler=generic,
        bodies=(AnyEvent,),
        example={"commit": {"id": "b" * 40}, "target": "staging"},
        parameters={"name": "What the settings call the hook."},
        **_COMMON,
    ),
)
