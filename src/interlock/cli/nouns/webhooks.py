"""Commands `interlock webhook …`: create secrets, and test receivers.

Each command imports its modules when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from interlock.cli.options import Json, epilog, examples

if TYPE_CHECKING:
    from datetime import datetime

    from interlock.systems.runs.reports.report import RunReport
    from interlock.systems.runs.settings import WebhookReporting

REFUSED = 1

app: typer.Typer = typer.Typer(
    help="Create webhook secrets, and test receivers.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("secret", epilog=epilog(examples("webhook secret", "webhook secret > /run/secrets/team-hook")))
def secret() -> None:
    """Create a secret for both sides of a webhook."""
    import secrets

    from interlock.systems.runs.webhook_security import new_signing_key

    typer.echo(new_signing_key(secrets.token_bytes(32)))


@app.command(
    "test",
    epilog=epilog(
        "\b\nExit codes:\n  0  the receiver accepted it\n  1  the receiver refused it\n  2  invalid usage",
        examples(
            "webhook test https://hooks.example.org/ci --secret-env TEAM_HOOK_SECRET",
            "webhook test http://127.0.0.1:9000 --secret-file key --allow 127.0.0.1 --word failed",
        ),
    ),
)
def try_out(
    url: Annotated[str, typer.Argument(metavar="URL", help="URL of the receiver.")],
    secret_env: Annotated[
        str, typer.Option(metavar="NAME", help="Environment variable with the secret.")
    ] = "",
    secret_file: Annotated[str, typer.Option(metavar="FILE", help="File with the secret.")] = "",
    word: Annotated[
        str, typer.Option(help="State to report: pending, running, success, failed, canceled or timeout.")
    ] = "success",
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="NETWORK", help="Allow a receiver in this private network; repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Send a signed sample report to a receiver."""
    import asyncio

    from interlock.cli.output import print_json
    from interlock.errors import InvalidSettings
    from interlock.systems.runs.reports.report import RunStatus
    from interlock.systems.runs.settings import WebhookReporting
    from interlock.systems.runs.webhook_security import networks, signing_keys

    keys = signing_keys("the receiver", variable=secret_env, file=secret_file)
    if not keys:
        raise InvalidSettings(
            "There is no secret to sign with.",
            todo="Name the variable (--secret-env) or the file (--secret-file) that holds it.",
        )
    if word not in list(RunStatus):
        raise typer.BadParameter(f"{word!r} is not one of {', '.join(RunStatus)}", param_hint="--word")
    try:
        networks(allow or ())
    except ValueError as fault:
        raise typer.BadParameter(str(fault), param_hint="--allow") from None
    report = _sample(RunStatus(word))
    settings = WebhookReporting(name="test", url=url, keys=keys, words=(word,), allow=tuple(allow or ()))
    refused = asyncio.run(_sent(settings, report))
    if as_json:
        print_json({"url": url, "webhook_id": report.id, "taken": not refused, "error": refused})
    else:
        typer.echo(f"{url} refused it: {refused}." if refused else f"{url} accepted {report.id}.")
    if refused:
        raise typer.Exit(REFUSED)


async def _now() -> datetime:
    """Return the time of this machine: there is no store."""
    from datetime import UTC, datetime

    return datetime.now(UTC)


async def _sent(settings: WebhookReporting, report: RunReport) -> str:
    """Return why the receiver refused it; empty if it accepted it."""
    from interlock.systems.runs.reports.report import DeliveryFailed
    from interlock.systems.runs.reports.webhook import WebhookReporter

    reporter = WebhookReporter(settings, _now)
    try:
        await reporter.deliver(report, "")
    except DeliveryFailed as error:
        return error.sentence
    finally:
        await reporter.close()
    return ""


def _sample(word: object) -> RunReport:
    from datetime import UTC, datetime

    from interlock.systems.runs.reports.report import RunReport, RunStatus
    from interlock.wire.runs import RunView, Source

    state = RunStatus(str(word))
    now = datetime.now(UTC)
    run = RunView(
        id="r_000000000000",
        state=state.upper(),
        version=1,
        workflow="sample",
        created_at=now,
        updated_at=now,
        outcome=state.upper() if state.final else None,
        source=Source(repository="example/sample", ref="refs/heads/main", sha="0" * 40, event="manual"),
        tally={"COMPLETED": 1},
    )
    return RunReport(run=run, status=state, at=now)
