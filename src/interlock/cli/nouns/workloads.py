"""Commands `interlock workload …`: run one workload on many agents.

Only the declarations are here: each command imports its modules when it runs, so that `--help` is quick.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from interlock.cli.forms import RecordsCommand
from interlock.cli.options import Id, Json, Place, Reason, epilog, examples

app: typer.Typer = typer.Typer(
    help="Run a workload on many agents at the same time.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=examples(
        "workload run load.yml --agents a.example,b.example",
        "workload list",
        "workload watch j_0a4e98fa6cab",
        "workload abort j_0a4e98fa6cab",
    ),
)
_CODES = """\b
Exit codes:
  0    all agents completed
  1    PARTIAL: as many as the policy needs, but not all; or DEGRADED: all of them, but further
       apart than skew-limit, or with impossible numbers; or a threshold was missed
  2    invalid usage, or nothing could be started
  3    the workload failed
  4    it was canceled
  130  Ctrl-C; the agents have stopped, and the results so far were saved"""
_ACCESS = """\b
INTERLOCK_AGENT_TOKEN is the token for agents that require one. For TLS give --tls-ca; for agents
with --tls-client-ca also --tls-cert and --tls-key. All files are in PEM format."""
Folder = Annotated[
    Path | None,
    typer.Option("--out", metavar="FOLDER", help="Write report, numbers and histograms to FOLDER."),
]


@app.command(
    epilog=epilog(
        _CODES,
        _ACCESS,
        examples(
            "workload run load.yml --agents a.example,b.example:7168",
            "workload run load.yml --agents 127.0.0.1 --out results",
            "workload run load.yml --agents a.example --tls-ca ca.pem --tls-cert me.pem --tls-key me.key",
            "workload run load.yml --json | jq .result.latencies.p99_ms",
        ),
    )
)
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Workload file; see docs/guides/fleet.md.")],
    agents: Annotated[
        str | None,
        typer.Option(metavar="HOST[:PORT],...", help="Agents to run on (default: those of the file)."),
    ] = None,
    out: Folder = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            envvar="INTERLOCK_AGENT_CA",
            metavar="FILE",
            help="CA certificates for agents.",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            envvar="INTERLOCK_AGENT_CERT", metavar="FILE", help="Client certificate of this controller."
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            envvar="INTERLOCK_AGENT_KEY", metavar="FILE", help="Private key of the client certificate."
        ),
    ] = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Run a workload on many agents, and follow it until it ends.

    It is a job that is driven from here: it is journalled and listed, and canceling the job stops the
    agents. Ctrl-C does that too.
    """
    _check_installed()
    from interlock.cli.nouns import workload_run

    tls = workload_run.Tls(tls_ca, tls_cert, tls_key)
    raise typer.Exit(workload_run.run(store, file, agents, out, tls, as_json=as_json))


@app.command("list", cls=RecordsCommand, epilog=examples("workload list", "workload list --limit 5 --json"))
def list_(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of results.")] = 20,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List workloads, newest first."""
    _check_installed()
    from interlock.cli.nouns import workload_views

    workload_views.show_list(store, limit, as_json=as_json)


@app.command(epilog=examples("workload show j_0a4e98fa6cab", "workload show j_0a4e --out results --json"))
def show(job_id: Id, out: Folder = None, store: Place = None, as_json: Json = False) -> None:
    """Show the result or the progress of a workload."""
    _check_installed()
    from interlock.cli.nouns import workload_views

    workload_views.show(store, job_id, out, as_json=as_json)


@app.command(epilog=epilog(_CODES, examples("workload watch j_0a4e98fa6cab")))
def watch(job_id: Id, store: Place = None, as_json: Json = False) -> None:
    """Follow a workload that another process drives.

    Ctrl-C stops the watching, not the workload.
    """
    _check_installed()
    from interlock.cli.nouns import workload_watch

    raise typer.Exit(workload_watch.watch(store, job_id, as_json=as_json))


@app.command(epilog=examples("workload abort j_0a4e98fa6cab --reason 'wrong target'"))
def abort(
    job_id: Id,
    reason: Reason = "aborted",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Stop a workload on every agent, within 20 seconds."""
    _check_installed()
    from interlock.cli.nouns import workload_views

    workload_views.abort(store, job_id, reason, as_json=as_json)


def _check_installed() -> None:
    """Check that the libraries of fleets are installed; silence gRPC's log."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from interlock.cli.agent import check_installed

    check_installed()
