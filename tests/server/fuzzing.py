"""A fuzzer that reads the OpenAPI document: makes requests of it, sends them, and judges the answers.

The requests are made by schemathesis. They go to the application itself, which saves the time that
sockets take; its store is a file, and everything behind the gate is as in a server. The event loop
runs only while somebody asks, so a piece of fuzzing does the same every time.

Most of what a fuzzer makes up is about jobs that do not exist. So each request is sent several times:
as it was made, and to each of several places with the ids, tokens and cursors that are real there.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import io
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, cast
from urllib.parse import unquote, urlsplit

import msgspec
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.config import ProjectConfig, SchemathesisConfig
from schemathesis.core.result import Ok
from schemathesis.core.transport import Response
from schemathesis.generation.drivers import CoverageGenerator
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.generation.overrides import Override
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi import checks

from interlock.server.app import every_route, make_app
from interlock.server.declaring import Route
from interlock.server.logs import Log
from interlock.server.openapi import document_of
from interlock.server.parts import Parts, open_parts
from interlock.server.settings import Rate, ServerSettings
from interlock.systems.access.principals import Role
from interlock.systems.fleet.spec import TASK
from interlock.systems.fleet.workloads import workload_id_of
from interlock.systems.quarantine.counting import Lost
from interlock.wire.artifacts import LEASE as LEASE_HEADER
from interlock.wire.artifacts import RUNNER as RUNNER_HEADER
from interlock.wire.jobs import JobSpec, JobView
from interlock.wire.runner import ClaimRequest, Complete, Grant, Heartbeat, Succeeded
from interlock.wire.runs import Plan, PlannedJob, RunSpec, RunView
from interlock.wire.simulations import SimulationSpec
from interlock.wire.workers import WorkerSpec
from interlock.wire.workloads import Happened, WorkloadFact

Operation: TypeAlias = schemathesis.APIOperation[Any, Any, Any, Any]
Case: TypeAlias = schemathesis.Case[Any]

CALLED = "http://localhost"
PATIENCE_S = 30.0
HURRY_S = 0.01
"""A runner that is made up does not wait for work any longer than this."""
FRESH_EVERY = 10
"""A message may use up a lease, and a request a job, so now and then they are made anew."""

SAME_CHANCE = settings(
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)

load_all_checks()
ALWAYS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
AS_MADE = [*ALWAYS, checks.negative_data_rejection, checks.unsupported_method]
"""What was put right in a request may make it a good one, so this is for those that were left alone."""


def schema_of(more: Sequence[Route] = (), *, tokens: bool = False) -> BaseSchema:
    """The document of a server, as a fuzzer reads it."""
    return _read(json.dumps(document_of(every_route(more), tokens_required=tokens)))


@functools.cache
def _read(document: str) -> BaseSchema:
    return schemathesis.openapi.from_dict(json.loads(document), config=SchemathesisConfig())


def operations(schema: BaseSchema) -> dict[str, Operation]:
    """Everything that can be asked for, by method and address."""
    found = (result.ok() for result in schema.get_all_operations() if isinstance(result, Ok))
    return {operation.label: operation for operation in found}


def systematic(operation: Operation) -> Iterator[Case]:
    """Requests at and beyond every bound that the document names; always the same ones."""
    project: ProjectConfig = operation.schema.config
    generation = project.generation_for(operation=operation, phase="coverage")
    yield from CoverageGenerator(
        operation=operation,
        generation_modes=generation.modes,
        generation_config=generation,
        auth_storage=None,
        override=Override(),
        feedback=FeedbackSources(),
        hooks=None,
    )


def drawn(operation: Operation, number: int) -> list[Case]:
    """Requests by chance, good ones and bad ones, but the same chance every time."""
    cases: list[Case] = []
    modes = [operation.as_strategy(generation_mode=mode) for mode in GenerationMode]

    @settings(SAME_CHANCE, max_examples=number)
    @given(case=st.one_of(modes))
    def draw(case: Case) -> None:
        cases.append(case)

    draw()
    return cases


# Places


Place = Callable[["World"], Mapping[str, str]]
"""Makes what is real there: values by the names of the parameters and fields that they are for."""


def as_made(_: World) -> Mapping[str, str]:
    """Nothing is put right."""
    return {}


def waiting(world: World) -> Mapping[str, str]:
    """A job that nobody has begun."""
    return world.real(world.submit())


def at_work(world: World) -> Mapping[str, str]:
    """A job that a runner has in hand."""
    grant = world.lease()
    return world.real(grant.job_id, grant)


def stopping(world: World) -> Mapping[str, str]:
    """A job that a runner shall stop."""
    grant = world.lease()
    world.hear(Heartbeat(token=grant.token, runner_id=RUNNER, sequence=1))
    world.run(world.parts.household.jobs.cancel(grant.job_id, reason="enough", actor="fuzzer"))
    return world.real(grant.job_id, grant)


def ended(world: World) -> Mapping[str, str]:
    """A job that is done, and the lease that did it."""
    grant = world.lease()
    world.hear(Complete(token=grant.token, runner_id=RUNNER, sequence=1, outcome=Succeeded()))
    return world.real(grant.job_id, grant)


RUNNER = "runner-7"
UNLUCKY = "runner-8"
"""A runner that has lost something, so that there is something to lift."""
ARTIFACT = "report"
SAVED = "deps-1"
"""The key of something that was saved for later."""
PLACES: tuple[Place, ...] = (as_made, waiting, at_work, stopping, ended)


# Asking


@dataclass(slots=True)
class World:
    """An application with a store of its own, and somebody who asks."""

    parts: Parts
    app: Any
    loop: asyncio.AbstractEventLoop
    schema: BaseSchema
    statuses: Counter[int]
    patience_s: float
    bearer: str = ""
    """The token that is sent along; none when it is empty."""

    @property
    def sent(self) -> int:
        """How many requests there were."""
        return self.statuses.total()

    def operation(self, label: str) -> Operation:
        """What can be asked for there."""
        return operations(self.schema)[label]

    def run(self, work: Any) -> Any:
        """Let time go on until this is done."""
        return self.loop.run_until_complete(asyncio.wait_for(work, self.patience_s))

    def try_out(self, cases: Sequence[Case], place: Place, *, fresh_every: int = FRESH_EVERY) -> None:
        """Send all of these to one place; raises at the first answer that is wrong."""
        real: Mapping[str, str] = {}
        for number, case in enumerate(cases):
            if number % fresh_every == 0:
                real = place(self)
            self.judge(put_right(case, real) if real else case, ALWAYS if real else AS_MADE)

    def judge_all(self, cases: Sequence[Case]) -> None:
        """Send all of these as they were made, by somebody who may not do any of it."""
        for case in cases:
            self.judge(case, ALWAYS)

    def judge(self, case: Case, by: Sequence[Any]) -> None:
        """Send one request, and hold the answer against the document."""
        case.validate_response(self.call(case), checks=list(by))

    def call(self, case: Case) -> Response:
        """Send one request."""
        if isinstance(case.body, dict) and _is_long(case.body.get("wait_s")):
            case.body["wait_s"] = HURRY_S
        if _is_long(_number(case.query.get("wait_s")), most=PATIENCE_S):  # beyond that it is refused
            case.query["wait_s"] = HURRY_S
        known = ("method", "url", "headers", "data", "json", "params", "cookies", "files")
        options = case.as_transport_kwargs(base_url=CALLED)
        request = requests.Request(**{name: options[name] for name in known if name in options}).prepare()
        status, headers, body = self.run(self._exchange(request))
        self.statuses[status] += 1
        return Response(
            status_code=status, headers=headers, content=body, request=request, elapsed=0.0, verify=False
        )

    async def _exchange(self, request: requests.PreparedRequest) -> tuple[int, dict[str, list[str]], bytes]:
        """One request and its answer; of a stream the beginning."""
        unread = [{"type": "http.request", "body": _bytes(request.body), "more_body": False}]
        enough = asyncio.Event()
        start: dict[str, Any] = {}
        body: list[bytes] = []

        async def receive() -> dict[str, Any]:
            if unread:
                return unread.pop()
            await enough.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                body.append(message.get("body", b""))
                enough.set()

        await self.app(_scope(request, self.bearer), receive, send)
        headers: dict[str, list[str]] = defaultdict(list)
        for name, value in start["headers"]:
            headers[name.decode("latin-1")].append(value.decode("latin-1"))
        return start["status"], headers, b"".join(body)

    # What is real

    def submit(self) -> str:
        """A job."""
        return cast(str, self.run(self.parts.household.jobs.submit(JobSpec(task=TASK), actor="fuzzer")))

    def evaluate(self, job_id: str) -> str:
        """A run, as far along as the job beside it: stopped where that one is."""
        runs = self.parts.household.runs
        plan = Plan(jobs=(PlannedJob(name="only", task="a.b", queue="elsewhere"),))
        made: RunView = self.run(runs.submit(RunSpec(workflow="a", plan=plan), actor="fuzzer"))
        view: JobView = self.run(self.parts.household.jobs.get(job_id))
        if view.completed_at is not None or view.stop_reason is not None:
            self.run(runs.cancel(made.id, actor="fuzzer"))
        self.simulate(made.id, view)
        return made.id

    def simulate(self, run_id: str, beside: JobView) -> None:
        """A simulation of the same name, as far along as a job: it waits, runs, stands or has ended."""
        manager = self.parts.household.simulations
        self.run(manager.create_run(SimulationSpec(task="a.b", run_id=run_id, queue="elsewhere")))
        if beside.completed_at is not None:
            self.run(manager.cancel(run_id))
        elif beside.started_at is not None:
            self.run(manager.transition(run_id, "running", worker_id=RUNNER))
            if beside.stop_reason is not None:
                self.run(manager.transition(run_id, "interrupted"))

    def hire(self, job_id: str) -> str:
        """A worker, as far along as the job beside it: idle, at work, held, or gone."""
        workers = self.parts.household.workers
        worker_id: str = self.run(workers.register(WorkerSpec(name=RUNNER, capacity=2))).id
        view: JobView = self.run(self.parts.household.jobs.get(job_id))
        if view.started_at is not None:
            self.run(workers.start(worker_id))
        if view.completed_at is not None:
            self.run(workers.terminate(worker_id))
        elif view.stop_reason is not None:
            self.run(workers.pause(worker_id))
        return worker_id

    def lease(self) -> Grant:
        """A job that is leased."""
        job_id = self.submit()
        request = ClaimRequest(runner_id=RUNNER, limit=500, queues=("default",))
        grants: list[Grant] = self.run(self.parts.household.orchestrator.claim(request))
        grant = next(grant for grant in grants if grant.job_id == job_id)
        here = self.parts.household
        self.run(here.artifacts.keep(grant.token, RUNNER, ARTIFACT, _pieces(b"well")))
        self.run(here.caches.keep(grant.token, RUNNER, SAVED, _pieces(b"wheels")))
        self.run(here.workloads.tell([self.load(grant)]))
        lost = Lost(runner=UNLUCKY, job_id=job_id, attempt="1.1")
        self.run(here.quarantine.count(msgspec.json.encode(lost)))
        return grant

    def load(self, grant: Grant) -> WorkloadFact:
        """What the job drives on an agent: all jobs here could drive a fleet."""
        name = workload_id_of(grant.job_id, grant.fence, 0)
        return WorkloadFact(workload_id=name, job_id=grant.job_id, happened=Happened.READY, kind="sleep")

    def token(self, role: Role, queues: Sequence[str] = ()) -> str:
        """A new token."""
        name = f"{role}-{'-'.join(queues) or 'all'}"
        issued = self.run(self.parts.tokens.create(name, role, queues=queues))
        return cast(str, issued.token)

    def hear(self, message: Any) -> None:
        """A message past the API."""
        self.run(self.parts.household.orchestrator.hear([message]))

    def real(self, job_id: str, grant: Grant | None = None) -> Mapping[str, str]:
        """The values of one job, its lease and the journal at this moment."""
        cursor = self.run(self.parts.store.latest())
        found = {"job_id": job_id, "job": job_id, "parent": job_id, "id": job_id, "kind": "job"}
        found |= {"attempt_id": f"{job_id}.1.1", "runner_id": RUNNER, "after": cursor, "name": "job"}
        found |= {
            "q": "queue:default",
            "filter": f"id:{job_id}",
            "task": TASK,
            "run_id": self.evaluate(job_id),
            "worker_id": self.hire(job_id),
            "artifact": ARTIFACT,
            "attempt": "1.1",
            "key": SAVED,
            "runner": UNLUCKY,
        }
        if grant is None:
            return found
        return found | {"token": grant.token, "workload_id": self.load(grant).workload_id}


ABOUT_RUNS = "/api/runs"


def about_runs(real: Mapping[str, str]) -> Mapping[str, str]:
    """What names mean where runs are spoken of: there a filter is one of runs, and a job has a name."""
    if "run_id" not in real:
        return real
    return {**real, "id": real["run_id"], "q": "workflow:a", "filter": f"id:{real['run_id']}", "job": "only"}


def put_right(case: Case, real: Mapping[str, str]) -> Case:
    """The same request about something that exists; what it does not speak of it is not given.

    It is not repeated either: two ids that differ would be all that the server looks at.
    """
    real = about_runs(real) if case.operation.path.startswith(ABOUT_RUNS) else real
    if case.method == "PUT":  # what is brought has a name of its own
        real = {name: value for name, value in real.items() if name not in ("artifact", "key")}
    path, query = dict(case.path_parameters), dict(case.query)
    body = copy.deepcopy(case.body) if isinstance(case.body, dict) else case.body
    several = [body.get(name) for name in ("messages", "facts")] if isinstance(body, dict) else []
    inner = [part for parts in several if isinstance(parts, list) for part in parts]
    for part in (path, query, body, *inner):
        _put_right(part, real)
    headers = {name: value for name, value in case.headers.items() if name.lower() != "idempotency-key"}
    _put_right(headers, {LEASE_HEADER: real.get("token", ""), RUNNER_HEADER: real.get("runner_id", "")})
    made: Case = case.operation.Case(
        method=case.method,
        path_parameters=path,
        query=query,
        headers=headers,
        cookies=case.cookies,
        body=body,
        media_type=case.media_type,
    )
    return made


def _put_right(part: Any, real: Mapping[str, str]) -> None:
    if isinstance(part, dict):
        part.update({name: real[name] for name in part if isinstance(name, str) and name in real})


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _is_long(wait_s: Any, most: float = float("inf")) -> bool:
    return isinstance(wait_s, int | float) and HURRY_S < wait_s <= most


def _number(text: Any) -> Any:
    """In a query a number is written as text."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else body or b""


def _scope(request: requests.PreparedRequest, bearer: str = "") -> dict[str, Any]:
    address = urlsplit(str(request.url))
    headers = [(b"host", b"localhost")]
    headers += [
        (name.lower().encode("latin-1"), _latin(value))
        for name, value in request.headers.items()
        if not bearer or name.lower() != "authorization"
    ]
    headers += [(b"authorization", f"Bearer {bearer}".encode())] if bearer else []
    return {
        "type": "http",
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": unquote(address.path),
        "raw_path": address.path.encode(),
        "root_path": "",
        "query_string": address.query.encode(),
        "headers": headers,
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 80),
    }


def _latin(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1")


@contextmanager
def world(
    folder: Path, more: Sequence[Route] = (), *, patience_s: float = PATIENCE_S, tokens: bool = False
) -> Iterator[World]:
    """A new one, with its store in a folder; where it asks for `tokens`, everybody needs one."""
    log = Log("error", "json", io.StringIO())
    loop = asyncio.new_event_loop()
    server = ServerSettings(port=0, tokens_required=tokens or None, stranger_rate=Rate(1e6, 10**6))
    opening = open_parts(f"sqlite:///{folder}/fuzz.db", server, log=log)
    try:
        parts = loop.run_until_complete(opening.__aenter__())
        try:
            schema = schema_of(more, tokens=tokens)
            yield World(parts, make_app(parts, more=more), loop, schema, Counter(), patience_s)
        finally:
            loop.run_until_complete(opening.__aexit__(None, None, None))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def walk(
    folder: Path, more: Sequence[Route] = (), *, first: Sequence[Place] = (), scenarios: int, steps: int
) -> Counter[tuple[str, int]]:
    """Ask for what answers lead to, by the links of the document and by names that are alike.

    Each scenario is one walk through a world of its own, in which these things were there `first`.
    Counts what was answered with which status.
    """
    answered: Counter[tuple[str, int]] = Counter()

    class Walk(schema_of(more).as_state_machine()):  # type: ignore[misc]
        def setup(self) -> None:
            self._open = ExitStack()
            place = self._open.enter_context(TemporaryDirectory(dir=folder))
            self._world = self._open.enter_context(world(Path(place), more))
            for each in first:
                each(self._world)

        def teardown(self) -> None:
            self._open.close()

        def call(self, case: Case, **_: Any) -> Response:
            response = self._world.call(case)
            answered[case.operation.label, response.status_code] += 1
            return response

        def validate_response(self, response: Response, case: Case, *_: Any, **__: Any) -> None:
            case.validate_response(response, checks=ALWAYS)

    Walk.run(settings=settings(SAME_CHANCE, max_examples=scenarios, stateful_step_count=steps))
    return answered
