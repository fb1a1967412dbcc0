"""Settings of jobs: durations, retries, limits of size, secrets."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from interlock.lifecycles.durations import DEFAULTS, Durations
from interlock.systems.blobs import BlobSettings
from interlock.systems.orchestrator.failures import (
    DEFAULT_LOSSES,
    DEFAULT_RETRIES,
    DEFAULT_RULES,
    FailureClass,
    FailureRule,
)
from interlock.systems.orchestrator.vault import NO_POLICY, SecretPolicy
from interlock.wire.jobs import RetryRule

DEFAULT_QUOTAS = (10, 8, 5, 3, 2, 1)
"""Quotas at each depth of a tree, from the root."""


class DeadLetterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Alert about jobs that have failed and have no try left."""

    task: str = ""
    """The task that is submitted for each of them, with the argument `letter`; empty for none."""
    queue: str = "default"
    """The queue that it is submitted to."""


class OrchestratorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Durations, failure classes and limits of jobs, each with its default."""

    durations: Durations = DEFAULTS
    failure_rules: tuple[FailureRule, ...] = DEFAULT_RULES
    """Custom rules come first: `(*mine, *DEFAULT_RULES)`."""
    retries: Mapping[FailureClass, RetryRule] = msgspec.field(default_factory=lambda: DEFAULT_RETRIES)
    losses: int = DEFAULT_LOSSES
    max_input_bytes: int = 262_144
    max_result_bytes: int = 262_144
    max_checkpoint_bytes: int = 65_536
    max_checkpoints_bytes: int = 262_144
    """Limit for all shards of a job together, to bound its record."""
    max_log_bytes: int = 67_108_864
    """Maximum size of the log of one attempt, from its beginning."""
    blobs: BlobSettings = BlobSettings()
    """The storage of artifacts, and its retention."""
    tree_quotas: tuple[int, ...] = DEFAULT_QUOTAS
    """Maximum number of concurrent workers of a tree, for each depth from the root."""
    secrets: SecretPolicy = NO_POLICY
    """The policy of secrets."""
    dead_letters: DeadLetterSettings = DeadLetterSettings()
    """The alert of dead letters."""


DEFAULT_SETTINGS = OrchestratorSettings()
