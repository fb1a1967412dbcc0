"""`interlock agent`: one machine of a fleet, which a controller starts workloads on.

What it needs is imported where it runs, so that `--help` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from interlock.cli.options import Json, epilog, examples


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(
        "agent",
        epilog=epilog(
            "\b\nOn 127.0.0.1 without a token, only the user who runs the agent is let in.\n"
            "Any other address needs a token, in --token-file or INTERLOCK_AGENT_TOKEN, and TLS.",
            "\b\nSIGTERM or Ctrl-C: its workload is stopped, within 15 seconds, then it ends.\n"
            "How long each of that may take is in interlock.toml, below [durations].",
            "\b\nExit codes:\n  0  it was asked to end\n"
            "  2  it could not begin: an address, a setting or a workload",
            examples(
                "agent",
                "agent --host 0.0.0.0 --token-file token --tls-cert cert.pem --tls-key key.pem",
                "agent --port 0 --json",
                "agent --workload shop.load:Checkout",
            ),
        ),
    )(agent)


def agent(
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 7167,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Tokens of controllers that are let in, one a line."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let everybody in without a token; send tokens without TLS.")
    ] = False,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="A certificate (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key (PEM).")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificates (PEM) that vouch for controllers.")
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:CLASS", help="A kind of workload of yours; may be given again."),
    ] = None,
    sample_every: Annotated[float, typer.Option(metavar="SECONDS", help="How often it tells numbers.")] = 1.0,
    drain: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long operations may take to end when time is over.")
    ] = 5.0,
    keepalive: Annotated[
        float, typer.Option(metavar="SECONDS", help="How soon a silent controller is missed, twice this.")
    ] = 15.0,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_format: Annotated[str, typer.Option(help="auto, json or text.")] = "auto",
    as_json: Json = False,
) -> None:
    """Be an agent: run the workloads that a controller asks for, one at a time."""
    from interlock.cli.agent_process import AgentOptions, run_agent

    said = AgentOptions(
        host=host,
        port=port,
        token_file=token_file,
        insecure=insecure,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        workloads=tuple(workload or ()),
        sample_every_s=sample_every,
        drain_s=drain,
        keepalive_s=keepalive,
        log_level=log_level,
        log_format=log_format,
        as_json=as_json,
    )
    raise typer.Exit(run_agent(said))
