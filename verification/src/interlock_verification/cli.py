"""Commands `interlock verify …`.

Explore the tables and deciders, mutate them, and simulate whole installations.

Only the declarations are here: each command imports its modules when it runs, so that `--help` is
quick.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from interlock_verification.models.plan import ModelPlan
    from interlock_verification.worlds.episode import Episode


FOUND_SOMETHING = 1
QUICK_HOURS = 270.0
"""Enough for every world with every mix of faults."""
HOURS_A_YEAR = 8_766.0

app = typer.Typer(
    help="Explore, mutate and simulate the lifecycles.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    epilog="""\b
Exit codes:
  0  every claim holds
  1  a claim is broken; the shortest counterexample is shown
  2  invalid usage""",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _examples(*commands: str) -> str:
    return "\n".join(("\b", "Examples:", *(f"  interlock verify {command}" for command in commands)))


@app.command("model", epilog=_examples("model", "model --environment race", "model --long"))
def model(
    environment: Annotated[
        str | None, typer.Option(metavar="NAME", help="Explore only this environment (default: all).")
    ] = None,
    long: Annotated[
        bool, typer.Option("--long", help="Include the large environments, which take minutes.")
    ] = False,
    most: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of states of each environment.")
    ] = None,
    replay: Annotated[str, typer.Option(metavar="N,N,…", help="Replay these choices.")] = "",
    as_json: Json = False,
) -> None:
    """Explore small worlds of jobs, workers and faults exhaustively.

    A world has orchestrators and a faulty network, too. The explored deciders are those that run in
    production.
    """
    from interlock_verification import report
    from interlock_verification.environments import plan_named
    from interlock_verification.environments import replay as play

    if replay:
        if environment is None:
            raise typer.BadParameter("--environment is needed as well", param_hint="--replay")
        report.print_story(play(plan_named(environment), _numbers(replay)), environment, as_json=as_json)
        return
    if not report.explore_all(_plans(environment, long=long), most=most, side_by_side=long, as_json=as_json):
        raise typer.Exit(FOUND_SOMETHING)


@app.command("mutate", epilog=_examples("mutate", "mutate --machine lease", "mutate --sample 30 --seed 7"))
def mutate(
    machine: Annotated[
        str | None, typer.Option(metavar="M", help="Try only mutants of this machine.")
    ] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="Size of a random sample.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 0,
    as_json: Json = False,
) -> None:
    """Break the tables in every way, and count the detected mutants.

    Each mutant lacks or changes one row, guard or coupling. Exits with 1 if a mutant survives that is not
    listed as harmless.
    """
    from interlock_verification import report

    if not report.mutate(machine, sample=sample, seed=seed, as_json=as_json):
        raise typer.Exit(FOUND_SOMETHING)


@app.command(
    "world",
    epilog=_examples(
        "world",
        "world --list",
        "world --world team --faults network --hours 50",
        "world --years 5",
        "world --world laptop --faults store --seed 91",
    ),
)
def world(
    world: Annotated[
        str | None, typer.Option(metavar="NAME", help="Simulate only this world (default: all).")
    ] = None,
    faults: Annotated[
        str | None, typer.Option(metavar="NAME", help="Simulate only this mix of faults (default: all).")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Use only this seed, once for each world and mix (default: seeds from 1)."),
    ] = None,
    hours: Annotated[
        float | None, typer.Option(min=0.01, help="Hours to simulate in all, or of each seed.")
    ] = None,
    years: Annotated[
        float | None, typer.Option(min=0.0001, help="Years to simulate, instead of hours.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Number of processes (default: one for each processor).")
    ] = None,
    only: Annotated[
        str, typer.Option(metavar="F,F,…", help="Inject only these faults, as a failure lists them.")
    ] = "",
    list_: Annotated[bool, typer.Option("--list", help="List the worlds and mixes of faults.")] = False,
    as_json: Json = False,
) -> None:
    """Simulate installations and their faults on virtual time.

    Orchestrators, workers and sweeps are those of production. The same seed repeats the same run; a failure
    is shrunk to a minimal set of faults, and ends with the command that replays it.
    """
    from interlock_verification import world_report

    if list_:
        world_report.print_worlds(as_json=as_json)
        return
    if hours is not None and years is not None:
        raise typer.BadParameter("give --hours or --years, not both", param_hint="--years")
    wanted = years * HOURS_A_YEAR if years is not None else hours
    episodes = _episodes(world, faults, seed, wanted, only)
    if not world_report.play_campaign(episodes, processes=jobs or os.cpu_count() or 1, as_json=as_json):
        raise typer.Exit(FOUND_SOMETHING)


def _episodes(
    world: str | None, faults: str | None, seed: int | None, hours: float | None, only: str
) -> Sequence[Episode]:
    from interlock_verification.worlds.campaign import episodes_of, episodes_with
    from interlock_verification.worlds.faults import faults_named
    from interlock_verification.worlds.worlds import world_named

    worlds = () if world is None else (world_named(world),)
    mixes = () if faults is None else (faults_named(faults),)
    if only and (not worlds or not mixes or seed is None):
        raise typer.BadParameter("--world, --faults and --seed are needed as well", param_hint="--only")
    names = None if not only else () if only == "none" else tuple(only.split(","))
    if seed is not None:
        return episodes_with(seed, worlds=worlds, faults=mixes, hours=hours, only=names)
    return list(episodes_of(QUICK_HOURS if hours is None else hours, worlds=worlds, faults=mixes))


def _plans(environment: str | None, *, long: bool) -> Sequence[ModelPlan]:
    from interlock_verification.environments import LONG, QUICK, plan_named

    if environment is not None:
        return (plan_named(environment),)
    return (*QUICK, *LONG) if long else QUICK


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter("numbers with commas between them", param_hint="--replay") from None
