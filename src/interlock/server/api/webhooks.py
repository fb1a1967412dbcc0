"""Webhooks that start runs. They carry no token: each is signed, and refused unless the signature is valid.

Anyone can send one, so requests with invalid headers are refused before the body is read. If webhooks are
configured, an unknown name is answered like a bad signature.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from interlock.api import runs as api
from interlock.server.parts import Parts
from interlock.server.requests import check_announced
from interlock.server.routes import Call, handles
from interlock.systems.runs.trigger_events import TriggerSettings
from interlock.systems.runs.triggers import webhook_disabled
from interlock.systems.runs.webhook_security import check_github, check_standard
from interlock.wire.runs import Receipt


def _settings(parts: Parts) -> TriggerSettings:
    return parts.runtime.settings.runs.triggers


def _most(parts: Parts) -> int:
    return _settings(parts).max_body_bytes


def _before_github(parts: Parts, _: Mapping[str, str], headers: Mapping[str, str]) -> None:
    if not _settings(parts).github_secrets:
        raise webhook_disabled("GitHub")
    if not _GITHUB.fullmatch(headers.get("x-hub-signature-256", "")):
        check_github((), headers, b"")  # raises the specific error
    check_announced(headers, _most(parts))


def _before_generic(parts: Parts, path: Mapping[str, str], headers: Mapping[str, str]) -> None:
    hooks = {hook.name for hook in _settings(parts).hooks if hook.keys}
    if not hooks:
        raise webhook_disabled(f"the name {path['name'][:100]}")
    if path["name"] not in hooks or not all(headers.get(name) for name in _STANDARD):
        check_standard((), headers, b"", _ANY_TIME)  # raises the specific error
    check_announced(headers, _most(parts))


_GITHUB = re.compile(r"sha256=[0-9a-fA-F]{64}")
_STANDARD = ("webhook-id", "webhook-timestamp", "webhook-signature")
_ANY_TIME = datetime.fromtimestamp(0, UTC)


@handles(api.RECEIVE_GITHUB_WEBHOOK, before=_before_github, read=bytes, most=_most)
async def github(call: Call) -> Receipt:
    """Process a delivery of GitHub."""
    return await call.parts.triggers.github(call.headers, call.body)


@handles(api.RECEIVE_WEBHOOK, before=_before_generic, read=bytes, most=_most)
async def generic(call: Call) -> Receipt:
    """Process a delivery that is signed according to Standard Webhooks."""
    return await call.parts.triggers.generic(call.path["name"], call.headers, call.body)
