"""Which kinds of workloads an agent can run: those that come with Interlock, and those of others.

A package of yours offers a kind through an entry point of the group `interlock.workloads`; one that is
not in a package is named when the agent is started (`--workload module:Class`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, TypeAlias

import msgspec

from interlock.agent.port import Workload
from interlock.errors import CannotLoad

GROUP = "interlock.workloads"
BUILT_IN = {
    "command": "interlock.agent.plugins.command:Command",
    "http": "interlock.agent.plugins.http:Http",
    "python": "interlock.agent.plugins.python:Python",
    "sleep": "interlock.agent.plugins.sleep:Sleep",
}

Kind: TypeAlias = type[Workload[Any]]


class Offered(msgspec.Struct, frozen=True):
    """A kind, and where its process finds it."""

    home: str
    kind: Kind


def offered_kinds(named: Iterable[str] = ()) -> dict[str, Offered]:
    """Every kind by its name; one that is named goes before one of a package, and that before ours."""
    homes = [*offered_homes(), *named]
    offered: Mapping[str, Offered] = {
        kind.kind: Offered(home, kind) for home in homes for kind in [load_kind(home)]
    }
    return dict(sorted(offered.items()))


def offered_homes() -> list[str]:
    """Return where the kinds of Interlock and of installed packages are; nothing is imported."""
    return [*BUILT_IN.values(), *(point.value for point in entry_points(group=GROUP))]


def load_kind(home: str) -> Kind:
    """The class at `module:Class`."""
    module, _, name = home.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise CannotLoad(
            f"There is no workload at {home!r}: {error}.",
            todo="Name it as module:Class, where Python finds the module.",
            facts={"home": home},
        ) from None
    if not (isinstance(found, type) and issubclass(found, Workload) and hasattr(found, "spec_type")):
        raise CannotLoad(
            f"{home!r} is no workload.",
            todo="Make it a class that extends interlock.agent.port.Workload, with kind, spec_type and run.",
            facts={"home": home},
        )
    return found
