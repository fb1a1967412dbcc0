"""The environments that ship with Interlock: small worlds, written as data.

`QUICK` are explored by `make test`, `LONG` by `make verify` as well. Each says what must be seen in it,
and how many states it has: another count means that tables, deciders or the model have changed, and
somebody has to look.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from interlock.errors import UnknownName
from interlock.verify.environments.long import LONG
from interlock.verify.environments.quick import QUICK
from interlock.verify.jobs.plan import Plan
from interlock.verify.jobs.world import JobWorld
from interlock.verify.model_checker import Model
from interlock.verify.runs.plan import RunPlan
from interlock.verify.runs.world import RunWorld

ENVIRONMENTS: Mapping[str, Plan] = MappingProxyType({plan.name: plan for plan in (*QUICK, *LONG)})


def plan_named(name: str) -> Plan:
    """The environment that goes by this name; a wrong name lists the right ones."""
    try:
        return ENVIRONMENTS[name]
    except KeyError:
        raise UnknownName(name, tuple(ENVIRONMENTS), where="an environment") from None


def model_of(plan: Plan) -> Model:
    """A plan as something that can be explored."""
    return RunWorld(plan) if isinstance(plan, RunPlan) else JobWorld(plan)


__all__ = ["ENVIRONMENTS", "LONG", "QUICK", "model_of", "plan_named"]
