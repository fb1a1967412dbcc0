"""Command `interlock runner-check`: test a runner, in any language, against the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from interlock.cli.options import FOUND_SOMETHING

if TYPE_CHECKING:
    from interlock.testing.runner_kit import Check, JobInputs, ScenarioVerdict


_EPILOG = """\b
The kit acts as the server of docs/reference/runner-protocol.md. With a command it starts the runner
once for each scenario, with {url} replaced by its address and the token in INTERLOCK_TOKEN. With a URL
it listens there; without a command it waits there for a runner that you start yourself.

\b
The work is a shell command (the task interlock.shell). For another task give --task, and --quick and
--slow with the input of a job that ends at once and of one that does not. In both, {ran} is a file to
which the work appends a line when it starts, {pid} one for its process id.

\b
Exit codes:
  0  the runner follows the protocol
  1  the runner breaks the protocol; the report shows where
  2  invalid usage

\b
Examples:
  interlock runner-check -- python examples/runner.py {url}
  interlock runner-check --only cancel --only silence -- ./my-runner --server {url}
  interlock runner-check http://127.0.0.1:9000 --token hush"""


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("runner-check", epilog=_EPILOG)(runner_check)


def runner_check(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[URL] [-- COMMAND…]", help="Address to listen on, and command that starts the runner."
        ),
    ] = None,
    token: Annotated[str | None, typer.Option(help="Token that the runner must send (default: any).")] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="SCENARIO", help="Only this scenario; repeatable.")
    ] = None,
    task: Annotated[str, typer.Option(help="Task of the jobs.")] = "interlock.shell",
    quick: Annotated[str, typer.Option(metavar="JSON", help="Input of a job that ends at once.")] = "",
    slow: Annotated[
        str, typer.Option(metavar="JSON", help="Input of a job that does not end by itself.")
    ] = "",
    ttl: Annotated[float, typer.Option(min=1.0, help="Lifetime of a lease, in seconds.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one line for each scenario.")] = False,
) -> None:
    """Test a runner, in any language, against the protocol."""
    import asyncio

    from interlock.testing.runner_kit import check
    from interlock.text import counted

    chosen = _check_of(words or [], token, only or [], _work(task, quick, slow), ttl)
    verdicts = asyncio.run(check(chosen, _print_json_verdict if as_json else _print_verdict))
    broken = sum(bool(verdict.faults) for verdict in verdicts)
    if not as_json:
        played = sum(not verdict.skipped for verdict in verdicts)
        typer.echo(f"{played - broken} of {counted(played, 'scenario')} passed.")
    raise typer.Exit(FOUND_SOMETHING if broken else 0)


def _check_of(words: list[str], token: str | None, only: list[str], work: JobInputs, ttl: float) -> Check:
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
        raise typer.BadParameter(f"there is no scenario {unknown}; choose from {known}") from None
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


def _work(task: str, quick: str, slow: str) -> JobInputs:
    import msgspec

    from interlock.testing.runner_kit import JobInputs

    work = JobInputs(task=task)
    for name, given in (("quick", quick), ("slow", slow)):
        if given:
            try:
                arguments = msgspec.json.decode(given, type=dict[str, Any])
            except msgspec.DecodeError as error:
                raise typer.BadParameter(f"--{name} is not a JSON object: {error}") from None
            work = msgspec.structs.replace(work, **{name: arguments})
    return work


def _print_verdict(verdict: ScenarioVerdict) -> None:
    from interlock.cli.errors import colour_wanted
    from interlock.text import harmless, harmless_lines

    mark, colour = ("-", "yellow") if verdict.skipped else ("✗", "red") if verdict.faults else ("✓", "green")
    typer.secho(f"{mark} ", fg=colour, nl=False, color=colour_wanted())
    typer.echo(f"{verdict.scenario:<16} {verdict.claim}")
    for line in filter(None, (*verdict.faults, *verdict.remarks, verdict.skipped)):
        typer.echo(f"    → {harmless(line)}")
    if verdict.last_words:
        typer.echo("    The last lines of the runner:")
        for line in harmless_lines(verdict.last_words).splitlines()[-8:]:
            typer.echo(f"      {line}")


def _print_json_verdict(verdict: ScenarioVerdict) -> None:
    from interlock.cli.output import print_line

    print_line(verdict)
