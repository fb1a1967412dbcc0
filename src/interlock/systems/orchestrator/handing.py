"""Grants with the values of the secrets that their jobs name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from interlock.systems.orchestrator.body import Provenance
from interlock.systems.orchestrator.vault import Asker, NoSecret, Vault, checkout_secret
from interlock.wire.runner import Ack, Complete, Failed, Grant, Message


class Handed(msgspec.Struct, frozen=True):
    """What a runner can be given, and what has to be said about the rest, each before the next."""

    grants: list[Grant]
    messages: list[list[Message]]


NO_ORIGIN = Provenance()


def handed(
    grants: Sequence[Grant], runner_id: str, vault: Vault, origins: Mapping[str, Provenance]
) -> Handed:
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
    return Handed(given, messages)


def _failure(grant: Grant, runner_id: str, error: NoSecret) -> list[Message]:
    failed = Failed(error=error.sentence, details=error.todo, failure_class="tooling")
    said: list[Message] = [Complete(token=grant.token, runner_id=runner_id, outcome=failed)]
    return said if grant.acknowledged else [Ack(token=grant.token, runner_id=runner_id), *said]
