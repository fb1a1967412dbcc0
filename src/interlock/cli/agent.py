"""Command `interlock agent`: one machine of a fleet, on which a controller starts workloads.

Only the declaration is here: it imports what it needs when it runs, so that `--help` is quick.
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
            "\b\nOn 127.0.0.1 without a token, only the user who runs the agent has access.\n"
            "Any other address requires a token, in --token-file or INTERLOCK_AGENT_TOKEN, and TLS.",
            "\b\nSIGTERM or Ctrl-C stops the workload within 15 seconds, then the agent.\n"
            "The deadlines are in interlock.toml, below [durations].",
            "\b\nExit codes:\n  0  stopped by a signal\n"
            "  2  it could not start: an address, a setting or a workload",
            examples(
                "agent",
                "agent --host 0.0.0.0 --token-file token --tls-cert cert.pem --tls-key key.pem",
                "agent --port 0 --json",
                "agent --workload shop.load:Checkout",
            ),
        ),
    )(agent)


def agent(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 chooses a free one.")] = 7167,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with the tokens of controllers, one per line."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve without authentication, or send tokens without TLS.")
    ] = False,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS certificate (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS key (PEM).")] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CA certificates (PEM) for client certificates of controllers."),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:CLASS", help="Workload class of your own; repeatable."),
    ] = None,
    sample_every: Annotated[
        float, typer.Option(metavar="SECONDS", help="Interval between two samples.")
    ] = 1.0,
    drain: Annotated[
        float, typer.Option(metavar="SECONDS", help="Grace period of operations at the end.")
    ] = 5.0,
    keepalive: Annotated[
        float, typer.Option(metavar="SECONDS", help="Keepalive; a controller is lost after twice this.")
    ] = 15.0,
    log_level: Annotated[str, typer.Option(help="Log level: debug, info, warning or error.")] = "info",
    log_format: Annotated[str, typer.Option(help="Log format: auto, json or text.")] = "auto",
    as_json: Json = False,
) -> None:
    """Run a fleet agent."""
    from interlock.cli.agent_process import AgentOptions, run_agent

    options = AgentOptions(
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
    raise typer.Exit(run_agent(options))
