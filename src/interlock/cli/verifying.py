"""`interlock verify …`: explore the tables and deciders, and break them to see that it is noticed.

Only the words are here. What they need is imported where they run, so that `--help` answers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from interlock.verify.jobs.plan import Plan

FOUND_SOMETHING = 1

app = typer.Typer(
    help="Explore every state that the lifecycles can reach together, and break them to see it noticed.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="""\b
Exit codes:
  0  every claim holds
  1  a claim is broken; the shortest story that shows it is told
  2  the question was wrong""",
)

Json = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]


def _examples(*commands: str) -> str:
    return "\n".join(("\b", "Examples:", *(f"  interlock verify {command}" for command in commands)))


@app.command("model", epilog=_examples("model", "model --environment race", "model --long"))
def model(
    environment: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this one; otherwise all of them.")
    ] = None,
    long: Annotated[bool, typer.Option("--long", help="Also the large ones: some minutes.")] = False,
    most: Annotated[int | None, typer.Option(min=1, help="Stop after so many states of each.")] = None,
    replay: Annotated[str, typer.Option(metavar="N,N,…", help="Tell the story of these choices again.")] = "",
    as_json: Json = False,
) -> None:
    """Explore small worlds of jobs, workers, orchestrators and a bad network, exhaustively.

    The deciders that are explored are those that run in production.
    """
    from interlock.cli import verdicts
    from interlock.verify.environments import plan_named
    from interlock.verify.exploring import replay as play

    if replay:
        if environment is None:
            raise typer.BadParameter("say of which --environment", param_hint="--replay")
        verdicts.print_story(play(plan_named(environment), _numbers(replay)), environment, as_json=as_json)
        return
    if not verdicts.explore_all(
        _plans(environment, long=long), most=most, side_by_side=long, as_json=as_json
    ):
        raise typer.Exit(FOUND_SOMETHING)


@app.command("mutate", epilog=_examples("mutate", "mutate --machine lease", "mutate --sample 30 --seed 7"))
def mutate(
    machine: Annotated[str | None, typer.Option(metavar="M", help="Only mutants of this machine.")] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="Only so many of them.")] = None,
    seed: Annotated[int, typer.Option(help="Which ones.")] = 0,
    as_json: Json = False,
) -> None:
    """Break every row, guard and coupling of the tables in turn, and count who is caught.

    Exits with 1 when a mutant survives that is not on the list of those that do no harm.
    """
    from interlock.cli import verdicts

    if not verdicts.mutate(machine, sample=sample, seed=seed, as_json=as_json):
        raise typer.Exit(FOUND_SOMETHING)


def _plans(environment: str | None, *, long: bool) -> Sequence[Plan]:
    from interlock.verify.environments import LONG, QUICK, plan_named

    if environment is not None:
        return (plan_named(environment),)
    return (*QUICK, *LONG) if long else QUICK


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter("numbers with commas between them", param_hint="--replay") from None
