"""The program of a member of the fleet: `interlock` itself, perhaps without one of its rules."""

from __future__ import annotations

from collections.abc import Sequence

from interlock.cli.main import main
from interlock_verification.chaos.forks import die_with_parent
from interlock_verification.chaos.system.broken_rules import break_rule


def run(broken_rule: str, arguments: Sequence[str]) -> int:
    """Run `interlock ARGUMENTS` without one of its rules."""
    die_with_parent()
    break_rule(broken_rule)
    return main(arguments)
