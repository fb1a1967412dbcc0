"""Helpers for tests, of Interlock itself and of programs that use it.

    from interlock.testing import in_memory

    async def test_a_letter_is_sent() -> None:
        async with in_memory() as il:
            job = await il.submit(send, "Hello")
            await il.clock.jump("2h")

Reading order:

    memory_interlock  an Interlock in memory, whose clock a test moves, with a worker that can be killed
    pytest_plugin     the fixtures `il` and `il_sync`, which pytest finds by itself
    at_work           an Interlock with a worker on SQLite, in real time
    faults            a store whose calls fail by a plan
    lifecycles        `check_lifecycle`: explore every order of the events of your own machine
    model_checker     every state that a model can reach, breadth first, and claims about them
    clocks            a clock that a test moves by hand; an event loop in which waiting takes no time
    skewed_clock      a process whose clock is wrong
    proxy             connections that are cut at the worst moment
    servers           real PostgreSQL and Redis servers, private to a test; `binaries` finds their programs,
                      `process_control` freezes them, and a `watchdog` ends them with their owner
    runner_kit        a conformance kit for runners in any language; `runner_server` is its server
    workloads         your own workload, executed without an agent
    agent_process     agents as processes of their own, killed at will
    store_contract    the contract of a store, as tests to run on any store
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock.store.records import Key
    from interlock.testing.clocks import JumpingClock
    from interlock.testing.faults import Fault, FaultyStore, Plan
    from interlock.testing.lifecycles import LifecycleBroken, check_lifecycle
    from interlock.testing.memory_interlock import (
        InMemory,
        SyncInMemory,
        in_memory,
        in_memory_sync,
        memory_store,
    )

_HOMES = {
    "Fault": "interlock.testing.faults",
    "FaultyStore": "interlock.testing.faults",
    "InMemory": "interlock.testing.memory_interlock",
    "JumpingClock": "interlock.testing.clocks",
    "Key": "interlock.store.records",
    "LifecycleBroken": "interlock.testing.lifecycles",
    "Plan": "interlock.testing.faults",
    "SyncInMemory": "interlock.testing.memory_interlock",
    "check_lifecycle": "interlock.testing.lifecycles",
    "in_memory": "interlock.testing.memory_interlock",
    "in_memory_sync": "interlock.testing.memory_interlock",
    "memory_store": "interlock.testing.memory_interlock",
}

__all__ = [
    "Fault",
    "FaultyStore",
    "InMemory",
    "JumpingClock",
    "Key",
    "LifecycleBroken",
    "Plan",
    "SyncInMemory",
    "check_lifecycle",
    "in_memory",
    "in_memory_sync",
    "memory_store",
]


def __getattr__(name: str) -> object:
    """Import a public name on first use, to load only what tests need."""
    if name not in _HOMES:
        raise AttributeError(f"module 'interlock.testing' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
