"""Routes of workloads: the jobs that drive fleets, their figures of all agents as one, and each share.

A job that drives a fleet is submitted, explained and cancelled like any other. All data come from existing
records: the job, one record for each agent, the lines of its log, and its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from inspect import getdoc
from typing import Any

import msgspec
import yaml

from interlock.agent.port import WorkloadType, load_kind, offered_homes
from interlock.api import workloads as api
from interlock.api.messages import HistoryPage
from interlock.errors import CannotLoad, InterlockError, InvalidWorkload, UnknownState, UnknownWorkload
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB
from interlock.lifecycles.workload import WORKLOAD
from interlock.server.api.runner import known_as
from interlock.server.api.visibility import is_shaped, job_of, unknown_job
from interlock.server.history import history_of
from interlock.server.routes import Call, handles
from interlock.store.records import Key, Query
from interlock.systems.fleet.outcome import WorkloadProgress, progress_in
from interlock.systems.fleet.spec import TASK, checked, spec_of
from interlock.systems.fleet.spec import job_of as driving_job
from interlock.systems.fleet.workload_file import WORKLOAD_FILE
from interlock.systems.fleet.workloads import Workloads, unknown_workload
from interlock.systems.orchestrator.attachments import LOG, Chunk
from interlock.wire.jobs import JobView
from interlock.wire.workloads import (
    QUEUE,
    Latencies,
    SecondView,
    WorkloadFacts,
    WorkloadResult,
    WorkloadsHeard,
    WorkloadSpec,
    WorkloadView,
)

STATES = tuple(str(state) for state in WORKLOAD.states)
MOST_AGENTS_SHOWN = 200
RECORDS_LOOKED_AT = 400
"""Number of newest agent records to examine for one page of jobs."""
JOBS_LOOKED_AT = 100
"""Number of newest jobs of a state to examine for workloads without agents."""
CHUNKS, MOST_CHUNKS = 60, 360
"""Number of log chunks to read in one query, and in all: each has the lines of a second or more."""
MOST_POINTS = 600
MOST_RESULT_BYTES = 16 * 1_048_576
RESULT_FILE = "result.json"
HIGHEST = ("p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")


class _Short(msgspec.Struct):
    """The fields of a result that a list shows."""

    verdict: str = ""
    operations: int = 0
    errors: int = 0
    rate: float = 0.0
    latencies: Latencies = Latencies()
    thresholds: tuple[_Judged, ...] = ()


class _Judged(msgspec.Struct):
    passed: bool


@handles(api.LIST_WORKLOAD_JOBS)
async def list_jobs(call: Call) -> api.WorkloadJobs:
    """Return the jobs of the newest agents.

    The first page also has those that have no agents yet. The latter are searched among the newest jobs,
    because a store has no index of tasks or queues. So a workload that ended before an agent was READY is
    found only among the jobs.
    """
    query: api.WorkloadJobsQuery = call.query
    found, cursor = await call.parts.runtime.workloads.find(
        Query(kind=WORKLOAD.name, cursor=query.cursor, limit=RECORDS_LOOKED_AT)
    )
    views: dict[str, JobView] = {}
    if not query.cursor:
        for state in (job.PENDING, job.RUNNING):
            newest_jobs, _ = await call.parts.runtime.jobs.find(
                Query(kind=JOB.name, states=(state,), limit=JOBS_LOOKED_AT)
            )
            views |= {view.id: view for view in newest_jobs if view.task == TASK}
    ids = [each for each in dict.fromkeys(one.job_id for one in found) if each not in views]
    views |= {view.id: view for view in await call.parts.runtime.jobs.get_many(ids) if view is not None}
    newest = sorted(views.values(), key=lambda view: (view.created_at, view.id), reverse=True)
    return api.WorkloadJobs(workloads=tuple(map(_short, newest[: query.limit])), cursor=cursor)


@handles(api.GET_WORKLOAD_JOB)
async def get_job(call: Call) -> api.WorkloadJobView:
    """Return one workload job, with its agents and its result."""
    view = await _driver(call)
    query = Query(kind=WORKLOAD.name, parent=view.id, limit=MOST_AGENTS_SHOWN)
    agents, cursor = await call.parts.runtime.workloads.find(query)
    result = await _result(call, view)
    if result is not None:
        result = msgspec.structs.replace(result, seconds=(), histogram="")
    return api.WorkloadJobView(
        job=_short(view, result),
        spec=spec_of(view),
        agents=tuple(sorted(agents, key=lambda each: each.agent)),
        more_agents=bool(cursor),
        result=result,
    )


@handles(api.GET_WORKLOAD_SECONDS)
async def get_seconds(call: Call) -> api.WorkloadSeconds:
    """Return the seconds of a result, or those of the log while there is none."""
    query: api.SecondsQuery = call.query
    view = await _driver(call)
    seconds: Sequence[SecondView] = ()
    if view.state in job.ENDED:
        result = await _result(call, view)
        if result is not None and not result.seconds:  # a long workload has them only in its file
            result = await _result_file(call, view) or result
        seconds = result.seconds if result is not None else ()
    if not seconds:
        seconds = _seconds(await _lives(call, view.id, query.after))
    wanted = [each for each in seconds if each.second > query.after]
    step = -(-len(wanted) // MOST_POINTS) or 1
    points = tuple(_point(wanted[first : first + step]) for first in range(0, len(wanted), step))
    return api.WorkloadSeconds(seconds=points, step=step, ended=view.state in job.ENDED)


@handles(api.GET_WORKLOAD_PERCENTILES)
async def get_percentiles(call: Call) -> api.WorkloadPercentiles:
    """Return the curve of the merged histogram."""
    view = await _driver(call)
    result = await _result(call, view)
    name = spec_of(view).name
    if result is None:
        raise UnknownWorkload(
            f"The workload {view.id} has no result: it is {view.state}.",
            todo="Wait until it has ended, or choose one that has completed.",
            facts={"job_id": view.id, "state": view.state},
        )
    points: list[tuple[float, float]] = []
    if result.histogram and result.latencies.count:
        if find_spec("hdrh") is None:
            raise CannotLoad(
                "This server cannot read histograms: HdrHistogram is not installed beside it.",
                todo="Install it on the server: pip install 'interlock[fleet]'.",
                facts={"missing": ["hdrh"]},
            )
        from interlock.systems.fleet import histograms  # noqa: PLC0415 - optional dependency

        points = histograms.at_nines(histograms.unwritten(result.histogram))
    curve = (
        api.PercentilePoint(nines=nines, percentile=100 * (1 - 10.0**-nines), ms=value)
        for nines, value in points
    )
    return api.WorkloadPercentiles(job_id=view.id, name=name, latencies=result.latencies, points=tuple(curve))


@handles(api.LIST_WORKLOAD_KINDS)
async def list_kinds(call: Call) -> api.WorkloadKinds:  # noqa: ARG001 - the same for every principal
    """Return the kinds that can be imported, with their specs' JSON Schema."""
    return api.WorkloadKinds(kinds=tuple(map(_kind, _kinds())), options=_options(), queue=QUEUE)


@handles(api.START_WORKLOAD)
async def start(call: Call) -> api.StartedWorkload:
    """Check a workload, and submit the job that drives it."""
    body: api.StartWorkload = call.body
    call.principal.need_queues([body.queue])
    spec = checked(body.workload)
    _check_given(spec)
    file = _file(body.workload)
    if body.check_only:
        return api.StartedWorkload(file=file)
    (job_id,) = await call.parts.runtime.jobs.submit_many(
        [driving_job(spec, body.queue)], actor=call.actor, request_id=call.request_id
    )
    return api.StartedWorkload(id=job_id, file=file)


async def _driver(call: Call) -> JobView:
    view = await job_of(call)
    if view.task != TASK:
        raise unknown_job(view.id)
    return view


def _short(view: JobView, result: WorkloadResult | None = None) -> api.WorkloadJob:
    spec = spec_of(view)
    made = api.WorkloadJob(
        id=view.id,
        state=view.state,
        name=spec.name or view.description,
        kind=spec.kind,
        agents=len(spec.agents),
        created_at=view.created_at,
        started_at=view.started_at,
        completed_at=view.completed_at,
        error=view.failure.error if view.failure else view.stop_reason or "",
        thresholds=len(spec.thresholds),
    )
    found: WorkloadResult | _Short | None = result
    if found is None and isinstance(view.result, msgspec.Raw):
        with suppress(msgspec.MsgspecError):
            found = msgspec.json.decode(view.result, type=_Short)
    if found is None:
        return made
    return msgspec.structs.replace(
        made,
        verdict=str(found.verdict),
        rate=found.rate,
        operations=found.operations,
        errors=found.errors,
        p50_ms=found.latencies.p50_ms,
        p99_ms=found.latencies.p99_ms,
        missed=sum(not each.passed for each in found.thresholds),
    )


async def _result(call: Call, view: JobView) -> WorkloadResult | None:
    """Return the result of the job, or of its saved file if it has none."""
    if view.state not in job.ENDED:
        return None
    if isinstance(view.result, msgspec.Raw):
        with suppress(msgspec.MsgspecError):
            return msgspec.json.decode(view.result, type=WorkloadResult)
    return await _result_file(call, view)


async def _result_file(call: Call, view: JobView) -> WorkloadResult | None:
    artifacts = call.parts.runtime.artifacts
    try:
        found = await artifacts.find(view.id, RESULT_FILE)
        if found.size > MOST_RESULT_BYTES:
            return None
        content = b"".join([piece async for piece in artifacts.read(found)])
        return msgspec.json.decode(content, type=WorkloadResult)
    except (InterlockError, msgspec.MsgspecError):  # no blobs, no file, or not a result file
        return None


async def _lives(call: Call, job_id: str, after: int) -> list[WorkloadProgress]:
    """Return the newest seconds of a log, oldest first, back to the given one."""
    query = Query(kind=LOG.name, parent=job_id, limit=CHUNKS)
    newest_first: list[WorkloadProgress] = []
    for _ in range(MOST_CHUNKS // CHUNKS):
        page = await call.parts.store.find(query)
        for record in page.records:
            newest_first += reversed(list(progress_in(msgspec.json.decode(record.body, type=Chunk))))
        if not page.cursor or (newest_first and newest_first[-1].elapsed_s < after):
            break
        query = msgspec.structs.replace(query, cursor=page.cursor)
    return newest_first[::-1]


def _seconds(lives: Iterable[WorkloadProgress]) -> list[SecondView]:
    """Return the progress by second, with errors of that second alone."""
    seconds: dict[int, SecondView] = {}
    errors: int | None = None
    for live in lives:
        fresh = 0 if errors is None else max(0, live.errors - errors)
        errors = live.errors
        seconds[int(live.elapsed_s)] = SecondView(
            second=int(live.elapsed_s),
            agents=live.running,
            operations=round(live.rate),
            errors=fresh,
            latencies=live.latencies,
        )
    return [seconds[number] for number in sorted(seconds)]


def _point(seconds: Sequence[SecondView]) -> SecondView:
    """Return several seconds as one: no peak of a latency is lost."""
    if len(seconds) == 1:
        return seconds[0]
    found = [each.latencies for each in seconds]
    highest = {name: max(_known(found, name), default=None) for name in HIGHEST}
    measured = [each for each in found if each.mean_ms is not None]
    count = sum(each.count for each in measured)
    mean_ms = sum((each.mean_ms or 0.0) * each.count for each in measured) / count if count else None
    return SecondView(
        second=seconds[0].second,
        agents=max(each.agents for each in seconds),
        operations=round(sum(each.operations for each in seconds) / len(seconds)),
        errors=round(sum(each.errors for each in seconds) / len(seconds)),
        latencies=Latencies(count=count, mean_ms=mean_ms, **highest),
    )


def _known(found: Iterable[Latencies], name: str) -> Iterator[float]:
    yield from (value for each in found if (value := getattr(each, name)) is not None)


@cache
def _kinds() -> tuple[WorkloadType, ...]:
    """Return the kinds that can be imported here.

    A third-party package may fail with any exception.
    """
    found = []
    for home in offered_homes():
        with suppress(Exception):
            found.append(load_kind(home))
    return tuple(found)


def _kind(kind: WorkloadType) -> api.WorkloadKind:
    schema: dict[str, Any] = {"type": "object"}
    with suppress(TypeError):  # a type without a JSON Schema
        (schema,), components = msgspec.json.schema_components(
            [kind.spec_type], ref_template="#/$defs/{name}"
        )
        schema = {**components.get(kind.spec_type.__name__, schema), "$defs": components}
    return api.WorkloadKind(kind=kind.kind, about=(getdoc(kind) or "").partition("\n")[0], json_schema=schema)


@cache
def _options() -> dict[str, Any]:
    """Return the schema of a workload.

    Its descriptions are those of the keys of workload files.
    """
    schema = msgspec.json.schema(WorkloadSpec)
    known = {field.name: field.doc for field in WORKLOAD_FILE.fields}
    properties = schema["$defs"][WorkloadSpec.__name__]["properties"]
    for name, each in properties.items():
        each["description"] = known.get(_key(name), "")
    return schema


def _check_given(spec: WorkloadSpec) -> None:
    """Raise if a kind that is installed here rejects its spec.

    Agents check again.
    """
    known = {kind.kind: kind for kind in _kinds()}
    kind = known.get(spec.kind)
    if kind is None:
        return
    try:
        kind.check(msgspec.convert(spec.spec, kind.spec_type))
    except (msgspec.ValidationError, ValueError) as error:
        raise InvalidWorkload(
            f"The workload cannot be run: {spec.kind} does not accept its spec: {error}.",
            todo="Correct spec; GET /api/workload-kinds has its schema.",
            facts={"kind": spec.kind, "fault": str(error)},
        ) from None


def _file(spec: WorkloadSpec) -> str:
    """Return a workload as a file for `interlock workload run`.

    Default values are left out.
    """
    made = {_key(name): value for name, value in msgspec.to_builtins(spec).items()}
    text: str = yaml.safe_dump(made, sort_keys=False, allow_unicode=True, default_flow_style=None)
    return text


def _key(name: str) -> str:
    """Return the key of a field in workload files."""
    return "with" if name == "spec" else name.removesuffix("_s").replace("_", "-")


# The share of each agent


@handles(api.TELL_WORKLOADS)
async def apply_facts(call: Call) -> WorkloadsHeard:
    """Record the events that a runner has received from the agents of its job."""
    body: WorkloadFacts = call.body
    await _workloads(call).apply_under(body.token, known_as(call.principal, body.runner_id), body.facts)
    return WorkloadsHeard(facts=len(body.facts))


@handles(api.LIST_WORKLOADS)
async def list_workloads(call: Call) -> api.WorkloadPage:
    """Return a page of workloads."""
    page: api.WorkloadsQuery = call.query
    if page.state and page.state.upper() not in STATES:
        raise UnknownState(page.state, STATES, where=WORKLOAD.name)
    query = Query(
        kind=WORKLOAD.name,
        states=(page.state.upper(),) if page.state else (),
        parent=page.job or None,
        limit=page.limit,
        cursor=page.cursor,
    )
    views, cursor = await _workloads(call).find(query)
    return api.WorkloadPage(workloads=tuple(views), cursor=cursor)


@handles(api.GET_WORKLOAD)
async def get_workload(call: Call) -> WorkloadView:
    """Return a workload."""
    workload_id = call.path["workload_id"]
    if not is_shaped(workload_id):
        raise unknown_workload(workload_id[:64])
    return await _workloads(call).get(workload_id)


@handles(api.GET_WORKLOAD_HISTORY)
async def get_history(call: Call) -> HistoryPage:
    """Return the journal of a workload, oldest first."""
    return await history_of(call.parts.store, call.query, Key(WORKLOAD.name, (await get_workload(call)).id))


def _workloads(call: Call) -> Workloads:
    return call.parts.runtime.workloads
