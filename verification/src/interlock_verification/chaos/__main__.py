"""Run the harnesses of chaos, print their counts, and fail if a guarantee was broken."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Mapping, Sequence

from interlock_verification.chaos import (
    black_hole,
    disk_full,
    eaten_reply,
    kill_committer,
    kill_server,
    power_loss,
    promotion,
    random_faults,
)
from interlock_verification.chaos.databases import ALL_STORES
from interlock_verification.chaos.system import harness as system
from interlock_verification.chaos.verdict import ChaosVerdict, Harness, Setup, table

HARNESSES: dict[str, Harness] = {
    kill_committer.NAME: kill_committer,
    kill_server.NAME: kill_server,
    promotion.NAME: promotion,
    eaten_reply.NAME: eaten_reply,
    black_hole.NAME: black_hole,
    disk_full.NAME: disk_full,
    power_loss.NAME: power_loss,
    random_faults.NAME: random_faults,
    system.NAME: system,
}


def main(arguments: Sequence[str] | None = None, harnesses: Mapping[str, Harness] = HARNESSES) -> int:
    """Return the exit code: 1 if a guarantee was broken.

    In broken mode it is 1 if this was not detected.
    """
    options = _arguments(arguments)
    failed = 0
    verdicts: list[ChaosVerdict] = []
    for name in options.only or harnesses:
        harness = harnesses[name]
        for store in harness.STORES:
            if options.store and store not in (options.store, "memory"):
                continue
            rounds = options.rounds or (harness.LONG if options.long else harness.SHORT)
            timed = options.timed or options.long
            setup = Setup(store=store, rounds=rounds, seed=options.seed, broken=options.broken, timed=timed)
            verdict = harness.run(setup)
            verdicts.append(verdict)
            print(*verdict.lines(), sep="\n", flush=True)
            if bool(verdict.broken_promises) != options.broken:
                failed += 1
                print("    FAILED: not noticed" if options.broken else "    FAILED", flush=True)
    print("", *table(verdicts), "", sep="\n")
    print("All promises were kept." if not (failed or options.broken) else f"{failed} harnesses failed.")
    return 1 if failed else 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m interlock_verification.chaos", description=__doc__)
    parser.add_argument("--only", action="append", choices=HARNESSES, help="this harness; may be repeated")
    parser.add_argument("--store", choices=ALL_STORES, help="on this store")
    parser.add_argument("--rounds", type=int, metavar="N", help="number of rounds of each harness")
    parser.add_argument("--long", action="store_true", help="as many rounds as are needed for confidence")
    parser.add_argument("--timed", action="store_true", help="judge how long recovery takes; so does --long")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="of an earlier run")
    parser.add_argument(
        "--broken", action="store_true", help="break promises on purpose; all must be noticed"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
