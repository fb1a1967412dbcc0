"""All claims that worlds check, and an index of them by the type of their facts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from interlock_verification.claims import (
    END_CLAIMS,
    GRANT_CLAIMS,
    HEARD_CLAIMS,
    REPORT_CLAIMS,
    STEP_CLAIMS,
    SUBMISSION_CLAIMS,
    VALUE_CLAIMS,
    FactClaim,
)
from interlock_verification.worlds.claims.episodes import EPISODE_CLAIMS
from interlock_verification.worlds.claims.fleet import FLEET_CLAIMS
from interlock_verification.worlds.claims.jobs import WORLD_JOB_CLAIMS
from interlock_verification.worlds.claims.keys import KEY_CLAIMS
from interlock_verification.worlds.claims.limits import LIMIT_CLAIMS
from interlock_verification.worlds.claims.runs import RUN_CLAIMS
from interlock_verification.worlds.claims.signals import SIGNAL_CLAIMS
from interlock_verification.worlds.claims.simulations import SIMULATION_CLAIMS
from interlock_verification.worlds.claims.trees import TREE_CLAIMS
from interlock_verification.worlds.claims.workers import WORKER_CLAIMS

WORLD_CLAIMS: Sequence[FactClaim[Any]] = (
    *VALUE_CLAIMS,
    *STEP_CLAIMS,
    *SUBMISSION_CLAIMS,
    *GRANT_CLAIMS,
    *HEARD_CLAIMS,
    *REPORT_CLAIMS,
    *END_CLAIMS,
    *WORLD_JOB_CLAIMS,
    *RUN_CLAIMS,
    *TREE_CLAIMS,
    *KEY_CLAIMS,
    *LIMIT_CLAIMS,
    *SIGNAL_CLAIMS,
    *SIMULATION_CLAIMS,
    *WORKER_CLAIMS,
    *FLEET_CLAIMS,
    *EPISODE_CLAIMS,
)


def claims_by_fact(claims: Iterable[FactClaim[Any]]) -> Mapping[type, Sequence[FactClaim[Any]]]:
    """Return the claims about each type of fact, in their order."""
    found: dict[type, list[FactClaim[Any]]] = defaultdict(list)
    for claim in claims:
        found[claim.about].append(claim)
    return dict(found)


CLAIMS_BY_FACT = claims_by_fact(WORLD_CLAIMS)
