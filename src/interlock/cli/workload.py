"""`interlock workload run|list|show|watch|abort`: one workload on many agents.

Only the words are here; what they need is imported where they run, so that `--help` answers at once.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from interlock.cli.options import JobId, Json, Place, epilog, examples
from interlock.errors import CannotLoad

app = typer.Typer(
    help="Run one workload on many agents, from one instant on, and see it as one.",
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
       apart than skew-limit, or with numbers that cannot be true; or a threshold was missed
  2    the question was wrong, or nothing could be started
  3    it has failed
  4    it was stopped by somebody else
  130  Ctrl-C; the agents have stopped, and what there is was saved"""
_ACCESS = """\b
Agents that ask for a token are given INTERLOCK_AGENT_TOKEN. For TLS give --tls-ca; for agents
with --tls-client-ca also --tls-cert and --tls-key. All files are in PEM format."""
Folder = Annotated[
    Path | None,
    typer.Option("--out", metavar="FOLDER", help="Save the report, the numbers and the histograms there."),
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
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What shall be done; docs/guides/fleet.md.")],
    agents: Annotated[
        str | None,
        typer.Option(metavar="HOST[:PORT],...", help="On which agents; otherwise as the file says."),
    ] = None,
    out: Folder = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            envvar="INTERLOCK_AGENT_CA",
            metavar="FILE",
            help="Certificates of authorities that vouch for agents.",
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
    """Run a workload on many agents at once, and follow it to its end.

    It is a job, driven from here: it is journalled and listed, and whoever cancels the job stops the
    agents. Ctrl-C does that too.
    """
    _fleet_is_installed()
    from interlock.cli import workload_actions

    tls = workload_actions.Tls(tls_ca, tls_cert, tls_key)
    raise typer.Exit(workload_actions.run(store, file, agents, out, tls, as_json=as_json))


@app.command("list", epilog=examples("workload list", "workload list --limit 5 --json"))
def list_(
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="At most so many.")] = 20,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List the workloads that were run, newest first."""
    _fleet_is_installed()
    from interlock.cli import workload_actions

    workload_actions.show_list(store, limit, as_json=as_json)


@app.command(epilog=examples("workload show j_0a4e98fa6cab", "workload show j_0a4e --out results --json"))
def show(job_id: JobId, out: Folder = None, store: Place = None, as_json: Json = False) -> None:
    """Show what has come of a workload, or how far it is: all agents together, and each of them."""
    _fleet_is_installed()
    from interlock.cli import workload_actions

    workload_actions.show(store, job_id, out, as_json=as_json)


@app.command(epilog=epilog(_CODES, examples("workload watch j_0a4e98fa6cab")))
def watch(job_id: JobId, store: Place = None, as_json: Json = False) -> None:
    """Follow a workload that somebody else drives. Ctrl-C ends the watching, not the workload."""
    _fleet_is_installed()
    from interlock.cli import workload_actions

    raise typer.Exit(workload_actions.watch(store, job_id, as_json=as_json))


@app.command(epilog=examples("workload abort j_0a4e98fa6cab --reason 'wrong target'"))
def abort(
    job_id: JobId,
    reason: Annotated[str, typer.Option(help="Why; the journal keeps it.")] = "aborted",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Stop a workload: every agent is told, and is done within 20 seconds."""
    _fleet_is_installed()
    from interlock.cli import workload_actions

    workload_actions.abort(store, job_id, reason, as_json=as_json)


def _fleet_is_installed() -> None:
    """What only fleets need is not installed with the rest. It logs nothing of its own to the terminal."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    missing = [name for name in ("grpc", "hdrh") if find_spec(name) is None]
    if missing:
        raise CannotLoad(
            f"Fleets need more than is installed here: {' and '.join(missing)}.",
            todo='pip install "interlock[fleet]"',
            facts={"missing": missing},
        )
