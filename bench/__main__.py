"""`python -m bench`: run every suite, show the figures, and fail when an aim was missed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec
from rich.console import Console

from bench import anatomy, figure_page, kernel
from bench.cli import starts
from bench.fleet import controller, overhead
from bench.jobs import crowd, drains, idle, unique
from bench.jobs.contenders import STORES, names
from bench.report import Section, report, show
from bench.rounds import FULL, LONG, QUICK, Pace
from bench.runs import pushes, shapes, sizes
from bench.scheduling import claims as scheduled_claims
from bench.scheduling import idle as idle_schedules
from bench.scheduling import tenants
from bench.server import cycles, lists, streams
from bench.simulations import lists as simulation_lists
from bench.simulations import races
from bench.stores import claims, flat, grouping, memory
from bench.stores.bare.loop import Unexpected
from bench.workers import beats, holding

SUITES = {
    "kernel": (kernel, anatomy),
    "stores": (claims, grouping, flat, memory),
    "jobs": (drains, idle, crowd, unique),
    "runs": (sizes, shapes, pushes),
    "simulations": (races, simulation_lists),
    "server": (cycles, lists, streams),
    "fleet": (overhead, controller),
    "scheduling": (scheduled_claims, idle_schedules, tenants),
    "workers": (beats, holding),
    "cli": (starts,),
}


def main() -> int:
    """Return the exit code: 1 when a suite missed an aim, 2 when it could not be trusted to run."""
    arguments = _arguments()
    console = Console()
    sections: list[Section] = []
    try:
        for part in [arguments.only] if arguments.only else SUITES:
            sections += _measured(part, arguments, console)
    except (kernel.NotComparable, Unexpected) as error:
        print(f"The bench refuses to run: {error}", file=sys.stderr)
        return 2
    run = report(tuple(sections), _command(arguments))
    show(run, console)
    if arguments.json is not None:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n")
    return 1 if any(section.missed for section in run.sections) else 0


def _measured(part: str, options: argparse.Namespace, console: Console) -> list[Section]:
    """Run the suites of one part; with `--keep` its figures are kept before the next part begins."""
    with console.status(f"Measuring {part}; the machine should be otherwise idle."):
        sections = [suite.run(_pace(options)) for suite in SUITES[part]]
    if options.keep is not None:
        name = part if options.keep in ("", part) else f"{part}-{options.keep}"
        figure_page.keep(report(tuple(sections), _command(options, part)), name)
        figure_page.write()
    return sections


def _command(options: argparse.Namespace, part: str | None = None) -> str:
    """Return the command line that measures a part, or all, once more."""
    words = ["python -m bench"]
    words += [f"--only {part or options.only}"] if part or options.only else []
    words += [f"--{name}" for name in ("quick", "long") if getattr(options, name)]
    words += [f"--{name} {value}" for name in ("store", "peer") for value in getattr(options, name)]
    words += [f"--at-once {options.at_once}"] if options.at_once else []
    return " ".join(words)


def _pace(options: argparse.Namespace) -> Pace:
    pace = QUICK if options.quick else LONG if options.long else FULL
    return msgspec.structs.replace(
        pace, stores=tuple(options.store), peers=tuple(options.peer), job_at_once=options.at_once
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only", choices=SUITES, type=str, help="one part of the suites; all of them when left out"
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="few and short rounds; the figures are rough")
    length.add_argument(
        "--long", action="store_true", help="a million records, commits and jobs; see README.md"
    )
    stores = [store.lower() for store in STORES]
    parser.add_argument(
        "--store", choices=stores, action="append", default=[], help="jobs, scheduling, workers: only there"
    )
    parser.add_argument("--peer", choices=names(), action="append", default=[], help="jobs: only beside it")
    parser.add_argument(
        "--at-once", type=int, metavar="N", help="jobs: no worker has more than N at once, such as 10"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round to FILE")
    parser.add_argument(
        "--keep",
        nargs="?",
        const="",
        metavar="NAME",
        help="also keep the figures of each part in bench/figures/PART.json, or PART-NAME.json",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
