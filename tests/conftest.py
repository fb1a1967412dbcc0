"""How all tests are run: patiently, compiled once, and in several processes."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings
from tests.brief_reports import pytest_runtest_makereport
from tests.bytecode import compile_tests, keep_bytecode_in
from tests.databases import postgres, redis, shared_postgres
from tests.effort import ALL, pick
from tests.forked_agents import fork_agents
from tests.patient_defaults import be_patient
from tests.processes import pytest_addoption, pytest_runtestloop

__all__ = [
    "postgres",
    "pytest_addoption",
    "pytest_runtest_makereport",
    "pytest_runtestloop",
    "redis",
    "shared_postgres",
]

# Said before anybody imports gRPC, which reads it then. With its care for forks a process that has spoken
# gRPC now and then loses a child between fork and exec, or leaves it hanging there with all its pipes open.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its threads would write between the dots of pytest

# How long an example takes, or is looked for, says how busy the machine is and nothing about us. `make test`
# tries the same examples each time; `make test-all` looks for new ones.
settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=pick(15, 100),
    derandomize=not ALL,
)
settings.load_profile("patient")

SELDOM = (10_000, 20, 100)
"""Thresholds of the garbage collector, see `gc.set_threshold`."""


def pytest_configure(config: pytest.Config) -> None:
    """Where bytecode may not lie beside the sources, it lies in the cache of pytest.

    Without it each of the hundreds of processes that tests start would compile the whole package anew.
    """
    be_patient()
    fork_agents()
    config.addinivalue_line("markers", "long: takes long and has found little; only `make test-all` runs it")
    config.addinivalue_line("markers", "together(thing): shares a costly thing with others of this mark")
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        keep_bytecode_in(config.rootpath / ".pytest_cache" / "bytecode")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect tests without looking for garbage, and never look for it among them: they stay to the end.

    What tests leave is looked through seldom: most is freed at once, and what is kept (the states that the
    model checker has explored, parsed modules) is large. With Python's thresholds that took a twentieth of
    the processor time of all tests.
    """
    gc.disable()
    try:
        compile_tests(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*SELDOM)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave long tests to `make test-all`, unless they are asked for by name."""
    long = [item for item in items if item.get_closest_marker("long")]
    if long and not ALL and not config.option.markexpr:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in set(long)]
