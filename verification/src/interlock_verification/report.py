"""Run `interlock verify model|mutate` and print the findings.

A progress bar, a table, and the steps that lead to a failure.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from interlock.cli.errors import colour_wanted
from interlock.cli.output import Sheet, on_terminal, print_json, print_sheets
from interlock.lifecycles import machine_named
from interlock.testing.model_checker import Violation
from interlock_verification.environments import ExplorationResult, Watch, explore, explore_side_by_side
from interlock_verification.models.plan import ModelPlan
from interlock_verification.mutation import Caught, MutantResult, all_mutants, harmless, try_mutants
from interlock_verification.system_machines import SYSTEM_MACHINES

TELL_EVERY_S = 60.0


def explore_all(plans: Sequence[ModelPlan], *, most: int | None, side_by_side: bool, as_json: bool) -> bool:
    """Explore and print these environments; return whether all is well."""
    known = [plan.states for plan in plans]
    total = None if None in known or most else sum(count or 0 for count in known)
    with bar("states", total) as watch:
        if side_by_side and len(plans) > 1:
            explored = list(explore_side_by_side(plans, most=most, watch=watch))
        else:
            explored = [explore(plan, most=most, watch=watch) for plan in plans]
    if as_json:
        print_json([_entry(one) for one in explored])
    else:
        _print_explored(explored)
    return all(one.ok for one in explored)


def print_story(violation: Violation, environment: str, *, as_json: bool) -> None:
    """Print one story."""
    if as_json:
        print_json(msgspec.to_builtins(violation))
        return
    for line in _story(violation, environment):
        print_text(line)


def mutate(machine: str | None, *, sample: int | None, seed: int, as_json: bool) -> bool:
    """Try the mutants; return whether each is detected or harmless."""
    chosen = None if machine is None else SYSTEM_MACHINES.get(machine) or machine_named(machine)
    mutants = all_mutants() if chosen is None else all_mutants((chosen,))
    if sample is not None and sample < len(mutants):
        mutants = random.Random(seed).sample(mutants, sample)
    with bar("mutants", len(mutants)) as watch:
        results = try_mutants(mutants, progress=lambda done, _: watch("mutants", done, 0))
    reasons = harmless()
    unexplained = [f for f in results if f.caught is Caught.NOTHING and f.mutant not in reasons]
    if as_json:
        found = msgspec.to_builtins(results)
        print_json(
            {"ok": not unexplained, **_score(results), "results": found, "fates": found}
        )  # its old name
    else:
        _print_results(results, reasons)
    return not unexplained


def _print_explored(explored: Sequence[ExplorationResult]) -> None:
    rows = [
        (
            one.environment,
            f"{one.report.states:,}",
            f"{one.report.edges:,}",
            str(one.report.depth),
            f"{one.seconds:.1f} s",
            _verdict(one),
        )
        for one in explored
    ]
    columns = ("environment", "states", "edges", "depth", "took", "verdict")
    print_sheets([Sheet("environment", "", columns, rows)])
    for one in explored:
        for violation in one.report.violations:
            for line in _story(violation, one.environment):
                print_text(line)
    if on_terminal():
        states = sum(one.report.states for one in explored)
        print_text(f"{states:,} states, at most {_megabytes()} MB in one process.")


def _verdict(one: ExplorationResult) -> str:
    if one.report.violations:
        return "broken: " + "; ".join(violation.claim for violation in one.report.violations)
    if not one.ok:
        return f"no violation, but there were {one.expected:,} states before: find out why"
    return f"{len(one.report.claims)} claims hold" if one.report.complete else "nothing found so far"


def _story(violation: Violation, environment: str) -> Iterator[str]:
    yield ""
    yield typer.style(f"Not {violation.mode}: {violation.claim}", fg="red", bold=True)
    if not violation.story:
        yield "It was never seen in this environment."
        return
    yield f"{len(violation.story)} steps lead there, and no fewer do:"
    for number, step in enumerate(violation.story, 1):
        yield f"{number:>4}. {step[0]}"
        yield from (typer.style(f"      {line}", dim=True) for line in step[1:])
    choices = ",".join(map(str, violation.choices))
    yield f"Again: interlock verify model --environment {environment} --replay {choices}"


def _print_results(results: Sequence[MutantResult], reasons: dict[str, str]) -> None:
    survivors = [result for result in results if result.caught is Caught.NOTHING]
    rows = [(f.mutant, reasons.get(f.mutant, "UNEXPLAINED")) for f in survivors]
    print_sheets([Sheet("survivor", "Survivors", ("mutant", "why it does no harm"), rows)])
    score = _score(results)
    print_text(
        f"{score['caught']} of {score['mutants']} mutants are caught ({score['percent']} %): "
        f"{score['by_table']} by the checks of the tables, {score['by_claim']} by a claim."
    )


def _score(results: Sequence[MutantResult]) -> dict[str, object]:
    caught = [result for result in results if result.caught is not Caught.NOTHING]
    by_table = sum(result.caught is Caught.TABLE for result in caught)
    return {
        "mutants": len(results),
        "caught": len(caught),
        "percent": round(100 * len(caught) / len(results), 1) if results else 100.0,
        "by_table": by_table,
        "by_claim": len(caught) - by_table,
    }


def _entry(one: ExplorationResult) -> dict[str, object]:
    return {"ok": one.ok, **msgspec.to_builtins(one)}


def _megabytes() -> int:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(kind).ru_maxrss for kind in kinds) // 1024


def print_text(text: str) -> None:
    """Print one line, coloured if wanted."""
    typer.echo(text, color=colour_wanted())


@contextmanager
def bar(noun: str, total: int | None) -> Iterator[Watch]:
    """Yield a progress display that sums the counts.

    It is a bar on a terminal, and a line a minute in a pipe.
    """
    counts: dict[str, int] = {}
    if not sys.stderr.isatty():
        yield _a_line_a_minute(counts, noun, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(noun))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)

        def watch(name: str, done: int, _: int) -> None:
            counts[name] = done
            progress.update(task, completed=sum(counts.values()), description=name)

        yield watch


def _a_line_a_minute(counts: dict[str, int], noun: str, total: int | None) -> Watch:
    """Return a function that prints the progress once a minute."""
    told_at = time.monotonic()
    whole = "" if total is None else f" of {total:,}"

    def watch(name: str, done: int, _: int) -> None:
        nonlocal told_at
        counts[name] = done
        if time.monotonic() - told_at >= TELL_EVERY_S:
            told_at = time.monotonic()
            typer.echo(f"{sum(counts.values()):,}{whole} {noun} ({name})", err=True)

    return watch
