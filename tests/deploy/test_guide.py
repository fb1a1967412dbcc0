"""The guide about production says what the files of deploy/ say, and its commands exist."""

from __future__ import annotations

import re

from tests.deploy.files import DEPLOY, GUIDE, STOPS_S, commands_in, documents, parsed
from tests.deploy.test_systemd import sections

from interlock.store.postgres.target import POOL

TEXT = GUIDE.read_text(encoding="utf-8")
(COMPOSE,) = documents(DEPLOY / "compose.yaml")
SERVER, *_ = documents(DEPLOY / "kubernetes" / "server.yaml")
WORKER, *_ = documents(DEPLOY / "kubernetes" / "worker.yaml")
(SCALED,) = documents(DEPLOY / "kubernetes" / "worker-autoscaling.yaml")


def test_every_command_of_the_guide_is_accepted() -> None:
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```$", TEXT, re.S | re.M)
    found = [words for block in blocks for words in commands_in(block)]
    found += [words for inline in re.findall(r"`(interlock [^`]+)`", TEXT) for words in commands_in(inline)]
    assert len(found) > 40
    for words in found:
        parsed(words)


def numbers_of(row: str) -> list[float]:
    """Return the first number of each cell of the row with this title."""
    (found,) = re.findall(rf"^\| {row} \|(.*)\|$", TEXT, re.M)
    return [float(number[0]) for cell in found.split("|") if (number := re.search(r"\d+", cell))]


def stops(unit: str) -> float:
    return float(sections(DEPLOY / "systemd" / unit)["Service"]["TimeoutStopSec"])


def test_the_guide_lists_the_stop_timeouts_of_the_deployment_files() -> None:
    services = COMPOSE["services"]
    composed = {
        name: float(services[name]["stop_grace_period"].removesuffix("s")) for name in ("server", "worker")
    }
    pods = [each["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] for each in (SERVER, WORKER)]
    assert numbers_of("server") == [
        STOPS_S["server"],
        stops("interlock-server.service"),
        composed["server"],
        pods[0],
    ]
    assert numbers_of("worker") == [
        STOPS_S["worker"],
        stops("interlock-worker@.service"),
        composed["worker"],
        pods[1],
    ]
    assert numbers_of("supervisor") == [STOPS_S["supervisor"], stops("interlock-supervisor.service")]
    assert numbers_of("agent") == [STOPS_S["agent"], stops("interlock-agent.service")]


def test_the_guide_lists_the_number_of_connections_that_each_deployment_opens() -> None:
    worker, server = POOL + 3, POOL + 1
    pairs = {
        "`compose.yaml`: 2 workers, 1 server": (COMPOSE["services"]["worker"]["deploy"]["replicas"], 1),
        "`kubernetes/`: 2 workers, 2 servers": (WORKER["spec"]["replicas"], SERVER["spec"]["replicas"]),
        "`kubernetes/` with autoscaling: 20 workers, 2 servers": (
            SCALED["spec"]["maxReplicaCount"],
            SERVER["spec"]["replicas"],
        ),
    }
    for title, (workers, servers) in pairs.items():
        assert f"{workers} workers, {servers} server" in title
        assert numbers_of(re.escape(title)) == [workers * worker + servers * server]
    assert f"worker opens up to {worker} connections and a server up to {server}" in " ".join(TEXT.split())
