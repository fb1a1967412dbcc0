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
"""At each depth of a tree, from its root to the deepest."""


class OrchestratorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Durations, classes of failure and limits of jobs, each with its default."""

    durations: Durations = DEFAULTS
    failure_rules: tuple[FailureRule, ...] = DEFAULT_RULES
    """Rules of one's own go first: `(*mine, *DEFAULT_RULES)`."""
    retries: Mapping[FailureClass, RetryRule] = msgspec.field(default_factory=lambda: DEFAULT_RETRIES)
    losses: int = DEFAULT_LOSSES
    max_input_bytes: int = 262_144
    max_result_bytes: int = 262_144
    max_checkpoint_bytes: int = 65_536
    max_checkpoints_bytes: int = 262_144
    """Of all shards of a job together: what a record holds is bounded, whatever handlers save."""
    max_log_bytes: int = 67_108_864
    """Of the log of one attempt so much is kept, from its beginning."""
    blobs: BlobSettings = BlobSettings()
    """Where artifacts are kept, and for how long."""
    tree_quotas: tuple[int, ...] = DEFAULT_QUOTAS
    """How many workers a tree of jobs may have at work at the same time, for each depth from its root on."""
    secrets: SecretPolicy = NO_POLICY
    """Which jobs may have which secrets."""


DEFAULT_SETTINGS = OrchestratorSettings()
