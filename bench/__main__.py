"""`python -m bench`: run every suite, show the figures, and fail when an aim was missed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec
from rich.console import Console

from bench import anatomy, kernel
from bench.report import report, show
from bench.rounds import FULL, QUICK

SUITES = (kernel, anatomy)


def main() -> int:
    """Return the exit code: 1 when a suite missed an aim, 2 when it could not be trusted to run."""
    asked = _arguments()
    console = Console()
    try:
        with console.status("Measuring; the machine should be otherwise idle."):
            run = report(tuple(suite.run(QUICK if asked.quick else FULL) for suite in SUITES))
    except kernel.NotComparable as error:
        print(f"The bench refuses to run: {error}", file=sys.stderr)
        return 2
    show(run, console)
    if asked.json is not None:
        asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n")
    return 1 if any(section.missed for section in run.sections) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few and short rounds; the figures are rough")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
