"""`interlock webhook …`: secrets for webhooks, and a try whether a receiver takes one.

Only the words are here; what they need is imported where they run, so that `--help` answers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from interlock.cli.options import Json, epilog, examples

if TYPE_CHECKING:
    from datetime import datetime

    from interlock.systems.runs.reporting.report import RunReport
    from interlock.systems.runs.settings import WebhookReporting

REFUSED = 1

app = typer.Typer(
    help="Make secrets for webhooks, and try receivers.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("secret", epilog=epilog(examples("webhook secret", "webhook secret > /run/secrets/team-hook")))
def secret() -> None:
    """Make a new secret, for both sides of a webhook."""
    import secrets

    from interlock.systems.runs.webhook_security import new_signing_key

    typer.echo(new_signing_key(secrets.token_bytes(32)))


@app.command(
    "test",
    epilog=epilog(
        "\b\nExit codes:\n  0  the receiver has taken it\n  1  it has not\n  2  the question was wrong",
        examples(
            "webhook test https://hooks.example.org/ci --secret-env TEAM_HOOK_SECRET",
            "webhook test http://127.0.0.1:9000 --secret-file key --allow 127.0.0.1 --word failed",
        ),
    ),
)
def try_out(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where the receiver is.")],
    secret_env: Annotated[str, typer.Option(metavar="NAME", help="The variable that holds the secret.")] = "",
    secret_file: Annotated[str, typer.Option(metavar="FILE", help="The file that holds the secret.")] = "",
    word: Annotated[
        str, typer.Option(help="pending, running, success, failed, canceled or timeout.")
    ] = "success",
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="NETWORK", help="An address that is not public and may be told."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Send a receiver a signed sample of what it will be told about runs."""
    import asyncio

    from interlock.cli.output import print_json
    from interlock.errors import InvalidSettings
    from interlock.systems.runs.reporting.report import RunStatus
    from interlock.systems.runs.settings import WebhookReporting
    from interlock.systems.runs.webhook_security import networks, signing_keys

    keys = signing_keys("the receiver", variable=secret_env, file=secret_file)
    if not keys:
        raise InvalidSettings(
            "There is no secret to sign with.",
            todo="Name the variable (--secret-env) or the file (--secret-file) that holds it.",
        )
    if word not in list(RunStatus):
        raise typer.BadParameter(f"{word!r} is none of {', '.join(RunStatus)}", param_hint="--word")
    try:
        networks(allow or ())
    except ValueError as fault:
        raise typer.BadParameter(str(fault), param_hint="--allow") from None
    report = _sample(RunStatus(word))
    said = WebhookReporting(name="test", url=url, keys=keys, words=(word,), allow=tuple(allow or ()))
    refused = asyncio.run(_told(said, report))
    if as_json:
        print_json({"url": url, "webhook_id": report.id, "taken": not refused, "error": refused})
    else:
        typer.echo(f"{url} has not taken it: {refused}." if refused else f"{url} has taken {report.id}.")
    if refused:
        raise typer.Exit(REFUSED)


async def _now() -> datetime:
    """Without a store, this machine's clock is the only one there is."""
    from datetime import UTC, datetime

    return datetime.now(UTC)


async def _told(settings: WebhookReporting, report: RunReport) -> str:
    """Why the receiver has not taken it; empty when it has."""
    from interlock.systems.runs.reporting.report import DeliveryFailed
    from interlock.systems.runs.reporting.webhook import WebhookReporter

    reporter = WebhookReporter(settings, _now)
    try:
        await reporter.tell(report, "")
    except DeliveryFailed as error:
        return error.sentence
    finally:
        await reporter.close()
    return ""


def _sample(word: object) -> RunReport:
    from datetime import UTC, datetime

    from interlock.systems.runs.reporting.report import RunReport, RunStatus
    from interlock.wire.runs import RunView, Source

    told = RunStatus(str(word))
    now = datetime.now(UTC)
    run = RunView(
        id="r_000000000000",
        state=told.upper(),
        version=1,
        workflow="sample",
        created_at=now,
        updated_at=now,
        outcome=told.upper() if told.final else None,
        source=Source(repository="example/sample", ref="refs/heads/main", sha="0" * 40, event="manual"),
        tally={"COMPLETED": 1},
    )
    return RunReport(run=run, word=told, at=now)
