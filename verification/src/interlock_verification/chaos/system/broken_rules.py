"""The rules that a broken fleet runs without, to show that this is detected.

unfenced    a report closes any open attempt, as with UPDATE ... WHERE job = ?
unswept     no process handles passed deadlines, of jobs or of workers
naive       clients without a response submit again, as a new request (see `clients`)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

UNFENCED, UNSWEPT, NAIVE = "unfenced", "unswept", "naive"
BROKEN_RULES = (UNFENCED, UNSWEPT, NAIVE)

_kept: list[Any] = []
"""References that keep patches from being undone by the garbage collector."""


def break_rule(broken_rule: str) -> None:
    """Disable a rule in this process."""
    if broken_rule == UNFENCED:
        _unfenced()
    elif broken_rule == UNSWEPT:
        _unswept()


def _unfenced() -> None:
    from interlock.lifecycles import LEASE, lease  # noqa: PLC0415 - only a broken fleet needs them
    from interlock.systems.orchestrator import runner_messages  # noqa: PLC0415
    from interlock.systems.orchestrator.aggregate import JobAggregate  # noqa: PLC0415
    from interlock.systems.orchestrator.tokens import Token  # noqa: PLC0415
    from interlock_verification.mutation import Mutant, in_place  # noqa: PLC0415

    def newest(draft: JobAggregate, _: Token) -> Any:
        return next((one for one in reversed(draft.body.attempts) if one.lease is not None), None)

    def rows() -> Iterator[Any]:
        for row in LEASE.table.rows:
            yield replace(row, when=tuple(guard for guard in row.when if guard is not lease.from_its_runner))

    patched: Any = runner_messages
    patched._attempt_of = newest  # noqa: SLF001 - a rule is broken on purpose
    token: Any = Token
    token.opens = lambda *_: True
    unfenced = in_place(Mutant(name="by hand", machine="lease", what="", rows=tuple(rows())))
    unfenced.__enter__()
    _kept.append(unfenced)


def _unswept() -> None:
    from interlock.systems.runtime import Runtime  # noqa: PLC0415

    async def sweep(_: Runtime) -> int:
        return 0

    patched: Any = Runtime
    patched.sweep = sweep
