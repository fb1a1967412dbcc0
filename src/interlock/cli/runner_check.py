"""Command `interlock runner-check`: test a runner, in any language, against the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from interlock.testing.runner_kit import Check, Verdict, Work


FOUND_SOMETHING = 1
_EPILOG = """\b
The kit plays the server of docs/reference/runner-protocol.md. With a command it starts the runner,
once for each scenario, with {url} replaced by an address of its own and the token in INTERLOCK_TOKEN.
With a URL it listens there; without a command it waits there for a runner that somebody has started.

\b
The work is a shell command (the task interlock.shell). For a runner that does something else: --task,
and --quick and --slow with the input of a job that ends at once and of one that does not. In both,
{ran} is a file to which the work adds a line when it begins, {pid} one for the number of its process.

\b
Exit codes:
  0  the runner is as it should be
  1  it is not; the report says where
  2  the question was wrong

\b
Examples:
  interlock runner-check -- python examples/runner.py {url}
  interlock runner-check --only cancel --only silence -- ./my-runner --server {url}
  interlock runner-check http://127.0.0.1:9000 --token hush"""


def register(app: typer.Typer) -> None:
    """Put the command into the program."""
    app.command("runner-check", epilog=_EPILOG)(runner_check)


def runner_check(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[URL] [-- COMMAND…]", help="Where to listen, and how the runner is started."),
    ] = None,
    token: Annotated[str | None, typer.Option(help="What the runner has to show; any by default.")] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="SCENARIO", help="Only this one, or these.")
    ] = None,
    task: Annotated[str, typer.Option(help="What the runner is given to do.")] = "interlock.shell",
    quick: Annotated[str, typer.Option(metavar="JSON", help="The input of work that ends at once.")] = "",
    slow: Annotated[str, typer.Option(metavar="JSON", help="And of work that does not.")] = "",
    ttl: Annotated[float, typer.Option(min=1.0, help="How long a lease lives, in seconds.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON, a line for each.")] = False,
) -> None:
    """Hold a runner, in whatever language it is written, against the protocol."""
    import asyncio

    from interlock.testing.runner_kit import check

    asked = _asked(words or [], token, only or [], _work(task, quick, slow), ttl)
    verdicts = asyncio.run(check(asked, _tell_program if as_json else _tell))
    broken = sum(bool(verdict.faults) for verdict in verdicts)
    if not as_json:
        played = sum(not verdict.skipped for verdict in verdicts)
        typer.echo(f"{played - broken} of {played} scenarios are as they should be.")
    raise typer.Exit(FOUND_SOMETHING if broken else 0)


def _asked(words: list[str], token: str | None, only: list[str], work: Work, ttl: float) -> Check:
    from urllib.parse import urlsplit

    from interlock.testing.runner_kit import Check, a_token, named
    from interlock.testing.runner_server import Pace

    address = urlsplit(words.pop(0)) if words and "://" in words[0] else None
    if address is None and not words:
        raise typer.BadParameter("give a URL to listen at, or after -- the command that starts the runner")
    if address is not None and (address.scheme != "http" or not address.hostname):
        raise typer.BadParameter("the kit listens at an address such as http://127.0.0.1:9000")
    try:
        scenarios = named(only)
    except KeyError as unknown:
        known = ", ".join(scenario.name for scenario in named(()))
        raise typer.BadParameter(f"there is no scenario {unknown}; there are {known}") from None
    return Check(
        command=tuple(words),
        host=(address.hostname if address else None) or "127.0.0.1",
        port=(address.port if address else None) or 0,
        token=a_token() if token is None and words else token or "",
        work=work,
        pace=Pace(
            ttl_s=ttl,
            heartbeat_every_s=min(1.0, ttl / 4),
            ack_window_s=ttl * 3 / 4,
            silence_ttl_s=min(6.0, ttl),
        ),
        scenarios=scenarios,
    )


def _work(task: str, quick: str, slow: str) -> Work:
    import msgspec

    from interlock.testing.runner_kit import Work

    work = Work(task=task)
    for name, given in (("quick", quick), ("slow", slow)):
        if given:
            try:
                arguments = msgspec.json.decode(given, type=dict[str, Any])
            except msgspec.DecodeError as error:
                raise typer.BadParameter(f"--{name} is not an object of JSON: {error}") from None
            work = msgspec.structs.replace(work, **{name: arguments})
    return work


def _tell(verdict: Verdict) -> None:
    from interlock.cli.errors import colour_wanted
    from interlock.text import harmless, harmless_lines

    mark, colour = ("-", "yellow") if verdict.skipped else ("✗", "red") if verdict.faults else ("✓", "green")
    typer.secho(f"{mark} ", fg=colour, nl=False, color=colour_wanted())
    typer.echo(f"{verdict.scenario:<16} {verdict.claim}")
    for line in filter(None, (*verdict.faults, *verdict.remarks, verdict.skipped)):
        typer.echo(f"    → {harmless(line)}")
    if verdict.last_words:
        typer.echo("    The runner wrote last:")
        for line in harmless_lines(verdict.last_words).splitlines()[-8:]:
            typer.echo(f"      {line}")


def _tell_program(verdict: Verdict) -> None:
    from interlock.cli.output import print_line

    print_line(verdict)
