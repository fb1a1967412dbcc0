"""The program of a member of the fleet: `interlock` itself, perhaps without one of its rules."""

from __future__ import annotations

from collections.abc import Sequence

from interlock.cli.main import main
from interlock_verification.chaos.forks import die_with_parent
from interlock_verification.chaos.system.ways import break_rule


def run(way: str, arguments: Sequence[str]) -> int:
    """Run the command line `interlock ARGUMENTS`, without the rule that `way` names."""
    die_with_parent()
    break_rule(way)
    return main(arguments)
