"""Grants with the values of the secrets that their jobs name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from interlock.processes.masks import Mask
from interlock.store.records import Record
from interlock.systems.orchestrator.body import Provenance, decode_body
from interlock.systems.orchestrator.vault import Asker, NoSecret, Vault, checkout_secret
from interlock.wire.runner import Ack, Complete, Failed, Grant, Message


class GrantsWithSecrets(msgspec.Struct, frozen=True):
    """What a runner can be given, and what has to be said about the rest, each before the next."""

    grants: list[Grant]
    messages: list[list[Message]]


NO_ORIGIN = Provenance()


def with_secrets(
    grants: Sequence[Grant], runner_id: str, vault: Vault, origins: Mapping[str, Provenance]
) -> GrantsWithSecrets:
    """Fill in the values. An attempt whose secrets are not to be had fails at once, and says why.

    `origins` tells by job where each comes from, as its record has it; a grant does not know that.
    """
    given: list[Grant] = []
    messages: list[list[Message]] = []
    for grant in grants:
        origin = origins.get(grant.job_id, NO_ORIGIN)
        checkout = checkout_secret(grant.task, grant.input)
        asker = Asker(task=grant.task, queue=grant.queue, origin=origin, checkout=checkout)
        try:
            values = {name: vault.find(name, asker) for name in grant.secrets}
        except NoSecret as error:
            messages.append(_failure(grant, runner_id, error))
        else:
            given.append(msgspec.structs.replace(grant, secrets=values) if values else grant)
    return GrantsWithSecrets(given, messages)


def redacted(message: Message, record: Record | None, vault: Vault) -> Message:
    """The message without the values of the secrets that its job was given.

    Runners mask what they report, and a runner of somebody else may not.
    """
    failed = isinstance(message, Complete) and isinstance(message.outcome, Failed)
    if record is None or not (message.log or failed) or b'"secrets":' not in record.body:
        return message
    body = decode_body(record.body)
    if body.secrets_withheld or not (mask := _mask_of(vault.values(body.secrets))).forms:
        return message
    lines = tuple(msgspec.structs.replace(line, text=mask.blanked(line.text)) for line in message.log)
    told = msgspec.structs.replace(message, log=lines)
    if isinstance(told, Complete) and isinstance(told.outcome, Failed):
        outcome = told.outcome
        error, details = mask.blanked(outcome.error), mask.blanked(outcome.details)
        told = msgspec.structs.replace(
            told, outcome=msgspec.structs.replace(outcome, error=error, details=details)
        )
    return told


@lru_cache(maxsize=64)
def _mask_of(values: tuple[str, ...]) -> Mask:
    return Mask({str(number): value for number, value in enumerate(values)})


def _failure(grant: Grant, runner_id: str, error: NoSecret) -> list[Message]:
    failed = Failed(error=error.sentence, details=error.todo, failure_class="tooling")
    said: list[Message] = [Complete(token=grant.token, runner_id=runner_id, outcome=failed)]
    return said if grant.acknowledged else [Ack(token=grant.token, runner_id=runner_id), *said]
