"""Which tests a store has to pass."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TypeAlias

from interlock.testing.store_contract.opener import Traits, applies

SUBJECTS = (
    "commit",
    "batches",
    "conflict",
    "claim",
    "due",
    "idempotency",
    "feed",
    "queries",
    "prune",
    "clock",
    "restart",
    "limits",
    "misuse",
    "concurrency",
    "tables",
    "model",
)
"""The modules with the tests, in the order in which somebody who writes a store wants to pass them."""

ContractTest: TypeAlias = Callable[..., object]


def suite_for(traits: Traits, *, subjects: tuple[str, ...] = SUBJECTS) -> dict[str, ContractTest]:
    """The tests that apply, by name; a test module takes them over with `globals().update(...)`."""
    found: dict[str, ContractTest] = {}
    for subject in subjects:
        for name, test in tests_of(subject).items():
            if name in found:
                raise ValueError(f"Two tests are called {name}.")
            if applies(test, traits):
                found[name] = test
    return found


def tests_of(subject: str) -> dict[str, ContractTest]:
    """All tests of one subject."""
    module = import_module(f"{__package__}.{subject}")
    return {
        name: test
        for name, test in vars(module).items()
        if name.startswith("test_") and getattr(test, "__module__", "") == module.__name__
    }
