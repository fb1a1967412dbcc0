"""The table of operations is whole, and addresses and inputs are made from it."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import msgspec
import pytest
from tests.sources import statements

from interlock import api, wire
from interlock.api import jobs, kinds, runs, workers
from interlock.api.access import GET_TOKEN
from interlock.api.operation import PARAMETER, Operation
from interlock.api.server import HEALTHZ, Alive
from interlock.api.table import NOUNS, OPERATIONS, declared_in
from interlock.errors import InterlockError, UnknownJob, UnknownKind, UnknownRecord
from interlock.remote.http_client import ApiClient
from interlock.server import routes
from interlock.server.api import ROUTES
from interlock.server.routes import Call, handles, routes_for
from interlock.wire.access import Role

SOURCE = Path(__file__).parents[2] / "src" / "interlock"
EVERY = (*OPERATIONS, *declared_in(kinds))


# The table


def test_no_two_operations_have_one_name_or_one_address() -> None:
    assert len({each.name for each in EVERY}) == len(EVERY)
    assert len({(each.method, each.path) for each in EVERY}) == len(EVERY)


def test_every_part_of_a_path_is_explained_and_nothing_else() -> None:
    assert [each.name for each in EVERY if set(PARAMETER.findall(each.path)) != set(each.parameters)] == []


def test_an_answer_may_have_fields_that_an_older_client_does_not_know() -> None:
    answers = {each for operation in EVERY for each in operation.answers if issubclass(each, msgspec.Struct)}
    assert [each for each in answers if each.__struct_config__.forbid_unknown_fields] == []


def test_an_input_with_an_unknown_field_is_refused() -> None:
    inputs = {
        each for operation in EVERY for each in (operation.query, *operation.bodies) if each is not None
    }
    ours = {each for each in inputs if each.__module__.startswith("interlock.api")}
    ours -= {runs.GithubEvent, runs.AnyEvent}  # the sender decides what is in them
    assert [each for each in ours if not each.__struct_config__.forbid_unknown_fields] == []


# Handlers


def test_the_handlers_of_a_noun_stand_in_the_file_with_the_name_of_its_operations() -> None:
    homes = {each.name: noun.__name__.rpartition(".")[2] for noun in NOUNS for each in declared_in(noun)}
    found = {route.name: route.handler.__module__.rpartition(".")[2] for route in ROUTES}
    assert {name: home for name, home in found.items() if homes[name] != home} == {}


async def alive(_: Call) -> Alive:
    return Alive(status="ok")


def test_an_operation_without_a_handler_does_not_let_the_server_start() -> None:
    lonely = Operation(name="lonely", request="GET /lonely", summary="Wait.", role=Role.VIEWER, output=Alive)
    with pytest.raises(LookupError, match="lonely"):
        routes_for((*OPERATIONS, lonely))


def test_a_handler_without_an_operation_does_not_let_the_server_start() -> None:
    with pytest.raises(LookupError, match="healthz"):
        routes_for([each for each in OPERATIONS if each is not HEALTHZ])


def test_an_operation_has_one_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "_BOUND", {})
    handles(HEALTHZ)(alive)
    with pytest.raises(LookupError, match="healthz has two handlers"):
        handles(HEALTHZ)(alive)


def test_every_route_is_the_operation_that_its_handler_was_bound_to() -> None:
    for operation, route in zip(OPERATIONS, ROUTES, strict=True):
        assert (route.method, route.path, route.role) == (operation.method, operation.path, operation.role)


# Addresses


def test_an_address_has_its_parameters_escaped() -> None:
    assert jobs.GET_JOB.address(job_id="j_0a") == "/api/jobs/j_0a"
    assert GET_TOKEN.address(token_name="a b/../c@d") == "/api/tokens/a%20b%2F..%2Fc@d"
    assert kinds.SEND.address(kind="order", record_id="7", event="pay/now") == (
        "/api/kinds/order/7/send/pay%2Fnow"
    )


@pytest.mark.parametrize("text", ["", ".", "..", "../runs", "a/b", "a?b", "a#b", "a%2Fb", "ü", "a" * 65])
def test_an_id_that_could_lead_elsewhere_is_refused_before_it_is_sent(text: str) -> None:
    with pytest.raises(UnknownJob) as caught:
        jobs.CANCEL_JOB.address(job_id=text)
    assert caught.value.facts == {"job_id": text[:64]}
    assert "interlock job list" in caught.value.todo


def test_a_record_that_cannot_be_is_named_with_its_kind() -> None:
    with pytest.raises(UnknownRecord, match=r"There is no order \.\./x"):
        kinds.GET.address(kind="order", record_id="../x")
    with pytest.raises(UnknownKind):
        kinds.GET.address(kind="../x", record_id="7")


# The client


class Recorder:
    """A server that notes what it is sent, and answers the same to all."""

    def __init__(self, answer: object) -> None:
        self.requests: list[httpx2.Request] = []
        self._answer = msgspec.json.encode(answer)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        return httpx2.Response(200, content=self._answer)


@pytest.fixture
def client() -> ApiClient:
    return ApiClient("http://127.0.0.1:1", names=lambda: "drawn")


async def sent(client: ApiClient, answer: object, *call: Any, **path: str) -> httpx2.Request:
    recorder = Recorder(answer)
    client._client = httpx2.AsyncClient(base_url=client.server, transport=httpx2.MockTransport(recorder))
    await client.call(*call, **path)
    await client.close()
    (request,) = recorder.requests
    return request


QUEUE = {"name": "mail", "state": "paused"}


async def test_a_change_is_sent_under_a_new_request_id_where_none_is_given(client: ApiClient) -> None:
    request = await sent(client, QUEUE, jobs.PAUSE_QUEUE, jobs.QueueRequest(queue="mail"))
    assert (request.method, request.url.path) == ("POST", "/api/queues/pause")
    assert json.loads(request.content) == {"queue": "mail", "request_id": "drawn"}
    request = await sent(
        client, QUEUE, jobs.PAUSE_QUEUE, jobs.QueueRequest(queue="mail", reason="full", request_id="mine")
    )
    assert json.loads(request.content) == {"queue": "mail", "reason": "full", "request_id": "mine"}


async def test_a_read_sends_only_parameters_that_differ_from_their_default_and_no_request_id(
    client: ApiClient,
) -> None:
    page = {"jobs": [], "cursor": ""}
    request = await sent(client, page, jobs.LIST_JOBS, jobs.JobsQuery(q="state:failed", limit=50))
    assert dict(request.url.params) == {"q": "state:failed"}
    assert request.content == b""
    request = await sent(client, {"workers": []}, workers.LIST_WORKERS)
    assert dict(request.url.params) == {}


async def test_a_change_without_an_input_has_no_body(client: ApiClient) -> None:
    request = await sent(client, {"reports": []}, runs.REPORT_AGAIN, run_id="r_0a")
    assert (request.url.path, request.content) == ("/api/runs/r_0a/reports/again", b"")


async def test_an_answer_that_is_no_problem_is_reported_as_it_is(client: ApiClient) -> None:
    client._client = httpx2.AsyncClient(
        base_url=client.server, transport=httpx2.MockTransport(lambda _: httpx2.Response(404, json={}))
    )
    with pytest.raises(InterlockError, match="not the answer of an Interlock server"):
        await client.call(jobs.GET_JOB, job_id="j_0a")
    await client.close()


# One struct for each message


def test_neither_the_server_nor_the_client_declares_a_message_of_its_own() -> None:
    """Inputs and outputs stand in `api` and `wire`, so that no message has two structs."""
    found = [
        f"{path.relative_to(SOURCE)}: {node.name}"
        for folder in ("remote", "server/api")
        for path in sorted((SOURCE / folder).glob("*.py"))
        for node in statements(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        and not node.name.startswith("_")  # a part of a body that is looked at before it is read
        and any("Struct" in ast.unparse(base) for base in node.bases)
    ]
    assert found == []


EQUAL = {
    frozenset({"ApproveRun", "ReplyRequest"}): "the comment of a reply is for the handler, and may be longer",
    frozenset({"BatchesQuery", "PageQuery", "WorkloadJobsQuery"}): "pages of different sizes",
    frozenset({"JobsQuery", "RunsQuery", "WorkersQuery"}): "jobs, runs and workers have words of their own",
    frozenset({"ActionRequest", "LettersRequest"}): "actions on jobs, and on dead letters",
    frozenset({"RecordsQuery", "SchedulesQuery"}): "states of any lifecycle, and those of schedules",
    frozenset(
        {"QueueRequest", "ResumeSimulation"}
    ): "a queue to pause, and one to continue in, if it is named",
    frozenset({"RunArtifactsQuery", "RunJobsQuery"}): "pages of different sizes",
    frozenset({"BatchJobs", "FlakyJobs", "PredecessorPage"}): "pages of different views",
    frozenset({"WorkloadJobs", "WorkloadPage"}): "pages of different views",
    frozenset({"RecordPage", "StoredPage"}): "without the data of a lifecycle, and with it as it is stored",
    frozenset({"KeyPage", "LimitsQuery"}): "an answer, and a question",
}
"""Structs whose fields have the same names, and in what they differ."""


def structs_in(modules: Iterable[ModuleType]) -> set[type[msgspec.Struct]]:
    """Return the structs that modules declare."""
    return {
        found
        for module in modules
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, msgspec.Struct)
        if found.__module__ == module.__name__
    }


def equal_fields(structs: Iterable[type[msgspec.Struct]]) -> set[frozenset[str]]:
    """Return the names of structs with fields of the same names, unless they have them from one base."""
    alike: dict[frozenset[str], set[str]] = defaultdict(set)
    for struct in structs:
        if len(names := frozenset(struct.__struct_fields__)) > 1:
            bases = [base for base in struct.__mro__[::-1] if issubclass(base, msgspec.Struct)]
            owner = next(base for base in bases[1:] if names <= {*base.__struct_fields__})
            alike[names].add(owner.__name__)
    return {frozenset(found) for found in alike.values() if len(found) > 1}


def test_no_two_messages_have_the_same_fields_without_a_difference() -> None:
    names = [
        found.name
        for package in (api, wire)
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if "fleet_pb2" not in found.name
    ]
    structs = structs_in(map(importlib.import_module, [*names, "interlock.engine.loops"]))
    assert len(structs) > 200
    assert equal_fields(structs) == EQUAL.keys()


def test_two_messages_with_the_same_fields_would_be_noticed() -> None:
    class Health(msgspec.Struct):
        rounds: int
        error: str

    class LoopHealth(msgspec.Struct):
        error: str
        rounds: int

    class Renamed(Health): ...

    class Longer(Health):
        at: str

    assert equal_fields([Health, LoopHealth, Renamed, Longer]) == {frozenset({"Health", "LoopHealth"})}
