"""Deliveries of webhooks: verified, decoded, mapped to a run, submitted once.

Authority. A sender with the secret may start only the runs that the settings allow; a delivery is decoded
only after its signature was verified.

Idempotency. A run is submitted under a request id derived from its subject: of GitHub's events the
repository, the ref, the commit before and after, the event and the pull request; of generic webhooks the name
of the hook and the id of the message. However often a delivery arrives, the store knows the id, and every
repeat is answered with the same run. The run and the id are one commit: a crash before it has no effect, and
a run continues after a crash behind it.

Why: decision 0193.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Protocol

import msgspec

from interlock.engine.clock import Clock
from interlock.errors import RequestIdReused, WebhookOff
from interlock.systems.runs.body import ChangeTime
from interlock.systems.runs.runs import RunService
from interlock.systems.runs.trigger_events import (
    ChangeEvent,
    Ignored,
    TriggerSettings,
    read_event,
    rule_for,
    spec_of,
)
from interlock.systems.runs.webhook_security import check_github, check_standard
from interlock.wire.runs import (
    ForkTerms,
    Receipt,
    RunSpec,
)

REMEMBERED_S = 7 * 86_400.0
"""GitHub allows redelivery for three days, so the request id must be kept that long."""


class SubmitsRuns(Protocol):
    """The interface of a submitter of runs."""

    async def submit_once(
        self,
        spec: RunSpec,
        *,
        request_id: str,
        actor: str,
        remember_s: float,
        terms: ForkTerms | None,
        happened: ChangeTime | None,
    ) -> str:
        """Return the id of the run submitted under the request id, now or earlier."""
        ...


class Triggers:
    """Handles webhooks."""

    def __init__(self, runs: SubmitsRuns, settings: TriggerSettings, clock: Clock) -> None:
        self._runs = runs
        self._settings = settings
        self._clock = clock
        self._hooks = {hook.name: hook for hook in settings.hooks if hook.keys}

    async def github(self, headers: Mapping[str, str], body: bytes) -> Receipt:
        """Handle a delivery of GitHub with its raw body.

        Header names are in lower case.
        """
        secrets = self._settings.github_secrets
        if not secrets:
            raise webhook_disabled("GitHub")
        check_github(secrets, headers, body)
        change = read_event(headers.get("x-github-event", ""), body)
        if isinstance(change, Ignored):
            return Receipt(accepted=False, reason=change.reason)
        rule = rule_for(change, self._settings.rules)
        if isinstance(rule, Ignored):
            return Receipt(accepted=False, reason=rule.reason)
        actor, terms = f"github:{change.source.actor}", rule.terms(change)
        happened = ChangeTime(at=change.at, before=change.before)
        return await self._submitted(rule.run.of(change), key_of(change), actor, terms, happened)

    async def generic(self, name: str, headers: Mapping[str, str], body: bytes) -> Receipt:
        """Handle a delivery to the hook of that name."""
        hook = self._hooks.get(name)
        if hook is None:
            raise webhook_disabled(f"the name {name[:100]}")
        message_id = check_standard(
            hook.keys, headers, body, await self._clock.now(), tolerance_s=hook.tolerance_s
        )
        return await self._submitted(
            spec_of(hook, body), _digest("hook", name, message_id), f"webhook:{name}"
        )

    async def _submitted(
        self,
        spec: RunSpec,
        key: str,
        actor: str,
        terms: ForkTerms | None = None,
        happened: ChangeTime | None = None,
    ) -> Receipt:
        run_id = await self._runs.submit_once(
            spec, request_id=key, actor=actor, remember_s=REMEMBERED_S, terms=terms, happened=happened
        )
        return Receipt(accepted=True, run_id=run_id)


def key_of(change: ChangeEvent) -> str:
    """Return the identity of a change.

    Two deliveries about one change have the same.
    """
    source = change.source
    return _digest(
        "github",
        source.repository.lower(),
        source.ref,
        change.before,
        source.sha,
        source.event,
        str(source.pull_request or ""),
    )


def _digest(*parts: str) -> str:
    return "wh_" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:48]


def webhook_disabled(what: str) -> WebhookOff:
    """Return the error of a webhook that is not configured."""
    return WebhookOff(
        f"This server takes no webhooks from {what}.",
        todo="Configure it with a secret (docs/guides/webhooks-and-statuses.md), and start the server again.",
    )


class IdempotentSubmitter:
    """Submits a run once per request id."""

    def __init__(self, runs: RunService) -> None:
        self._runs = runs

    async def submit_once(
        self,
        spec: RunSpec,
        *,
        request_id: str,
        actor: str,
        remember_s: float,
        terms: ForkTerms | None = None,
        happened: ChangeTime | None = None,
    ) -> str:
        """Return the id of the run submitted under the request id, now or earlier.

        Two deliveries about one change may differ in irrelevant fields (the sender, say), and the settings
        may have changed between them: the existing run is returned.
        """
        runs = self._runs
        try:
            run = await runs.submit(
                spec,
                request_id=request_id,
                actor=actor,
                remember_s=remember_s,
                terms=terms,
                happened=happened,
            )
        except RequestIdReused:
            recorded = await runs.engine.store.recall(request_id)
            if recorded is None:
                raise
            return msgspec.json.decode(recorded.answer.body, type=str)
        return run.id
