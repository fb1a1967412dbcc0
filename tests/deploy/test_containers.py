"""The image and the compose file: no root, commands and endpoints that there are, and time to stop.

The compose file is compared with the schema of the Compose Specification. It is not started: there may be no
registry with the image of PostgreSQL.
"""

from __future__ import annotations

import copy
import re
import tomllib
from typing import Any
from urllib.parse import urlsplit

import jsonschema_rs
import pytest
from tests.deploy.files import (
    DEPLOY,
    MARGIN_S,
    METRICS_PATH,
    PATHS,
    ROOT,
    STOPS_S,
    documents,
    parsed,
    schema_in,
    variables,
)

from interlock.cli import project
from interlock.server.settings import DEFAULT_PORT
from interlock.store.urls import url_of

IMAGE = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
(COMPOSE,) = documents(DEPLOY / "compose.yaml")
OURS = {name: service for name, service in COMPOSE["services"].items() if name != "postgres"}


def stages(text: str) -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage; those before the first belong to none."""
    lines = re.sub(r"^#.*\n", "", text, flags=re.M).replace("\\\n", " ").splitlines()
    found: list[list[tuple[str, str]]] = []
    for line in filter(str.strip, lines):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append((word, rest.strip()))
    return found


def last(word: str) -> str:
    """Return the last such instruction of the last stage, which decides."""
    return [rest for name, rest in stages(IMAGE)[-1] if name == word][-1]


def words_of(instruction: str) -> list[str]:
    return re.findall(r'"([^"]*)"', instruction)


def asked(words: list[str]) -> tuple[int, str]:
    """Return the port and the path that a health check asks for."""
    (url,) = re.findall(r"http://[^']+", " ".join(words))
    parts = urlsplit(url)
    return parts.port or 0, parts.path


def seconds(text: str) -> float:
    assert text.endswith("s"), text
    return float(text.removesuffix("s"))


def test_the_image_is_built_in_one_stage_and_runs_without_it_and_without_root() -> None:
    build, run = stages(IMAGE)
    assert build[0][1] == "${BASE} AS build"
    assert run[0][1] == "${BASE}"
    assert ("COPY", "--from=build /opt/interlock /opt/interlock") in run
    user, _, group = last("USER").partition(":")
    assert int(user) > 0 < int(group), "numbers: Kubernetes compares them with runAsNonRoot"
    after = [word for word, _ in run[run.index(("USER", last("USER"))) :]]
    assert "RUN" not in after


def test_the_base_is_pinned_and_new_enough() -> None:
    pinned = re.search(r"^ARG BASE=\S+/python:(\d+)\.(\d+)\.(\d+)-slim-\w+$", IMAGE, re.M)
    assert pinned
    least = re.fullmatch(r">=(\d+)\.(\d+)", PROJECT["requires-python"])
    assert least
    assert tuple(map(int, pinned.groups()[:2])) >= tuple(map(int, least.groups()))


def test_the_image_has_extras_that_there_are_and_no_cache_of_pip() -> None:
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)$", IMAGE, re.M)
    assert {"postgres", "redis"} <= set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    assert "PIP_NO_CACHE_DIR=1" in IMAGE


def test_the_image_starts_a_server_and_its_health_check_requests_an_existing_endpoint() -> None:
    assert words_of(last("ENTRYPOINT")) == ["interlock"]
    values = parsed(words_of(last("CMD")))
    assert values["port"] == DEFAULT_PORT
    assert values["host"] == "0.0.0.0", "others reach it, so it asks for tokens"
    port, path = asked(words_of(last("HEALTHCHECK")))
    assert port == DEFAULT_PORT
    assert path in PATHS
    assert last("STOPSIGNAL") == "SIGTERM"


def test_the_version_of_the_image_is_that_of_the_package() -> None:
    files = [DEPLOY / "Containerfile", DEPLOY / "compose.yaml", *(DEPLOY / "kubernetes").glob("*.yaml")]
    named = {tag for file in files for tag in re.findall(r"interlock:(\d\S*)", file.read_text("utf-8"))}
    assert named == {PROJECT["version"]}


def test_the_schema_of_the_compose_specification_accepts_the_compose_file() -> None:
    jsonschema_rs.validate(schema_in("compose-spec"), COMPOSE)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("services", "worker", "deploy", "replica"), 2),
        (("services", "worker", "stop_grace"), "40s"),
        (("services", "server", "healthcheck", "test"), 3),
        (("services", "server", "depends_on", "postgres", "condition"), "service_is_healthy"),
        (("service",), {}),
    ],
)
def test_a_slip_in_the_compose_file_is_found(place: tuple[str, ...], value: object) -> None:
    slip = copy.deepcopy(COMPOSE)
    inner = slip
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    assert not jsonschema_rs.is_valid(schema_in("compose-spec"), slip)


@pytest.mark.parametrize("name", OURS)
def test_a_service_runs_a_command_that_there_is_and_has_time_to_stop(name: str) -> None:
    service = OURS[name]
    values = parsed(service["command"])
    assert seconds(service["stop_grace_period"]) >= STOPS_S[service["command"][0]] + MARGIN_S
    assert set(service["environment"]) <= variables()
    port, path = asked(service["healthcheck"]["test"])
    assert port == (values.get("port") or values["metrics_port"])
    assert path in (PATHS if name == "server" else {METRICS_PATH})
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]


def test_services_wait_until_their_dependencies_are_healthy() -> None:
    services = COMPOSE["services"]
    assert {name: needs(service) for name, service in services.items()} == {
        "postgres": set(),
        "server": {"postgres"},
        "worker": {"postgres", "server"},
    }
    waited_for = {name for service in services.values() for name in needs(service)}
    assert all("healthcheck" in services[name] for name in waited_for)
    assert services["worker"]["deploy"]["replicas"] == 2


def needs(service: dict[str, Any]) -> set[str]:
    conditions = service.get("depends_on", {})
    return {name for name, how in conditions.items() if how == {"condition": "service_healthy"}}


def test_the_services_share_a_store_whose_password_is_not_in_the_file() -> None:
    (url,) = {service["environment"]["INTERLOCK_URL"] for service in OURS.values()}
    secret = re.search(r":(\$\{POSTGRES_PASSWORD:\?[^}]+\})@", url)
    assert secret
    assert secret[1] == COMPOSE["services"]["postgres"]["environment"]["POSTGRES_PASSWORD"]
    plain = url.replace(secret[1], "secret")
    assert url_of(plain) == plain
    assert urlsplit(plain).hostname in COMPOSE["services"]


def test_the_port_is_published_on_this_machine_only() -> None:
    assert COMPOSE["services"]["server"]["ports"] == [f"127.0.0.1:{DEFAULT_PORT}:{DEFAULT_PORT}"]


def test_the_mounted_settings_are_found_where_the_programs_start() -> None:
    place = last("WORKDIR")
    for service in OURS.values():
        mounted = dict(volume.split(":")[:2] for volume in service["volumes"])
        assert mounted["./interlock.toml"] == f"{place}/{project.FILE}"
        settings = project.read_file(DEPLOY / "interlock.toml")
        assert mounted["blobs"] == f"{place}/{settings.blobs.directory}"
