"""Words that the commands about runs share. Nothing here takes time to import."""

from __future__ import annotations

from typing import Annotated

import typer

RunId = Annotated[str, typer.Argument(metavar="ID", help="A run, by its id or the beginning of it.")]
RunsOrFilter = Annotated[
    list[str], typer.Argument(metavar="ID... | FILTER...", help="Runs by their ids, or a filter.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show which runs are meant.")]
RequestId = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Do it once, however often this is sent with the same request id."),
]
Patience = Annotated[
    str | None,
    typer.Option("--timeout", metavar="TIME", help="Give up after 90s, 15m, 12h; the run goes on."),
]

FILTERS = """\b
FILTER is any of these words; all of them must hold:
  outcome:failed,timeout     -state:reported       workflow:ci
  repository:shop/web        branch:main           tag:v1         sha:5f1c0d0...
  label:nightly              origin:r_...          id:r_...       group:release
  since:1d until:10m         by when it was asked for; also since:2026-01-31 (UTC)"""
OUTCOMES = """\b
Exit codes:
  0    it succeeded
  2    the question was wrong, or the store does not answer
  3    it has failed, or ran out of time
  4    it was canceled
  5    its outcome was not decided in time
  130  Ctrl-C; the run goes on"""
