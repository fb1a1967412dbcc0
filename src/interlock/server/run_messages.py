"""What goes in and out about runs where `interlock.wire` has no struct for it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from interlock.server.messages import MAX_PAGE, Cursor, Limit, Reason, RequestId
from interlock.wire.artifacts import ArtifactView
from interlock.wire.runs import RunJobView, RunSpec, RunView

RunFilterText = Annotated[
    str, Meta(max_length=2_000, description="Which runs: `outcome:failed workflow:ci since:1d`.")
]


class _In(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what comes in."""


class _Out(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of what goes out."""


class OneRun(RunSpec, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One run that somebody asks for, perhaps under a request id."""

    request_id: RequestId | None = None

    def spec(self) -> RunSpec:
        """The run without the id of the request, which is not part of it."""
        return RunSpec(**{name: getattr(self, name) for name in RunSpec.__struct_fields__})


class RunsQuery(_In, frozen=True, kw_only=True):
    """Which page of which runs."""

    q: RunFilterText = ""
    limit: Limit = 50
    cursor: Cursor = ""


class RunQuery(_In, frozen=True, kw_only=True):
    """How much of a run."""

    jobs: Annotated[bool, Meta(description="false: without its jobs, however many they are.")] = True


class RunJobsQuery(_In, frozen=True, kw_only=True):
    """Which of its jobs."""

    first: Annotated[int, Meta(ge=0, le=1_000_000, description="From which place of the plan on.")] = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE, description="How many at most.")] = 200


class CancelRun(_In, frozen=True, kw_only=True):
    """Stop a run."""

    reason: Reason = ""
    request_id: RequestId | None = None


class ApproveRun(_In, frozen=True, kw_only=True):
    """Approve a run that waits for it."""

    comment: Reason = ""
    request_id: RequestId | None = None


class DeclineRun(_In, frozen=True, kw_only=True):
    """Do not approve a run that waits for it."""

    reason: Reason = ""
    request_id: RequestId | None = None


class RerunRequest(_In, frozen=True, kw_only=True):
    """Do a run again that has ended."""

    which: Annotated[
        Literal["all", "failed", "from"], Meta(description="`from`: from one job on; the others are kept.")
    ] = "all"
    job: Annotated[str, Meta(max_length=200, description="With `from`: the name of the job.")] = ""
    request_id: RequestId | None = None


class RerunQuery(_In, frozen=True, kw_only=True):
    """Which rerun is previewed."""

    which: Annotated[
        Literal["all", "failed", "from"], Meta(description="`from`: from one job on; the others are kept.")
    ] = "all"
    job: Annotated[str, Meta(max_length=200, description="With `from`: the name of the job.")] = ""


class RunArtifactsQuery(_In, frozen=True, kw_only=True):
    """The artifacts of which of its jobs."""

    first: Annotated[int, Meta(ge=0, le=1_000_000, description="From which place of the plan on.")] = 0
    limit: Annotated[int, Meta(ge=1, le=100, description="Of how many jobs at most.")] = 50


class RunActionRequest(_In, frozen=True, kw_only=True):
    """Do something with every run that a filter means."""

    filter: RunFilterText
    action: Literal["cancel", "rerun"]
    which: Literal["all", "failed"] = "all"
    dry_run: Annotated[bool, Meta(description="Only say which runs it would be.")] = False
    limit: Limit = 100
    reason: Reason = ""
    request_id: RequestId | None = None


class RunPage(_Out, frozen=True, kw_only=True):
    """Runs without their jobs, newest first. `cursor` is for the next page, and is empty at the end."""

    runs: tuple[RunView, ...]
    cursor: str


class RunJobs(_Out, frozen=True, kw_only=True):
    """Jobs of a run in the order of its plan. `next` is where more begin, and is missing at the end."""

    run_id: str
    jobs: tuple[RunJobView, ...]
    next: int | None = None


class RunArtifact(_Out, frozen=True, kw_only=True):
    """A file, and the name of the job that has left it behind."""

    job: str
    artifact: ArtifactView


class RunArtifacts(_Out, frozen=True, kw_only=True):
    """Artifacts of some jobs of a run in the order of its plan. `next` is where more jobs begin."""

    run_id: str
    artifacts: tuple[RunArtifact, ...]
    next: int | None = None
