"""The names that others rely on. Changing one is a decision, so it is made here as well.

`public_api.txt` has the names of the references of Python, with their parameters and fields. After a decision
to change one: `python -m tests.tidy.test_public_names > tests/tidy/public_api.txt`, and a line in
CHANGELOG.md.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from docs.python_pages import CONSTRUCTED, INTERNAL, PROMISED

import interlock.errors
import interlock.machine

PINNED = Path(__file__).with_name("public_api.txt")
CALLED_BY_THE_WORKER = {name for names in INTERNAL.values() for name in names.split()} | {
    "relay_predecessors",
    "surround",
}
STARS: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}

MACHINE = [
    "Across",
    "Always",
    "Blueprint",
    "Coupling",
    "Couplings",
    "Deadline",
    "Decision",
    "Difference",
    "Entry",
    "Event",
    "EventRef",
    "Fault",
    "Kind",
    "Machine",
    "Moved",
    "Refusal",
    "Refused",
    "Row",
    "STAY",
    "State",
    "Step",
    "Table",
    "Tone",
    "blueprint_of",
    "command",
    "compare",
    "consequence",
    "couple",
    "end",
    "entries_of",
    "event",
    "find_faults",
    "ignore",
    "map_of",
    "message",
    "on",
    "refuse",
    "rest",
    "signal",
    "state",
    "timer",
    "walk",
]
ERRORS = [
    "AgentRefused",
    "AgentUnavailable",
    "AlreadyThere",
    "ArrivedTooSlowly",
    "ArtifactExists",
    "ArtifactGone",
    "BadFilter",
    "BadPayload",
    "BadRequest",
    "BadStoreUrl",
    "BlobsFull",
    "CacheRefused",
    "CannotListen",
    "CannotLoad",
    "CannotWrite",
    "ClaimOver",
    "CommitFailed",
    "ConflictingCompletion",
    "ConflictingRequestIds",
    "Contended",
    "DuplicateJob",
    "EventIgnored",
    "FlakyError",
    "ForeignOrigin",
    "ForeignSchema",
    "GuardRefused",
    "IllegalChange",
    "InterlockError",
    "InvalidArguments",
    "InvalidArtifact",
    "InvalidData",
    "InvalidJob",
    "InvalidLimit",
    "InvalidRecord",
    "InvalidRun",
    "InvalidSchedule",
    "InvalidSettings",
    "InvalidSignal",
    "InvalidSimulation",
    "InvalidToken",
    "InvalidWorker",
    "InvalidWorkload",
    "JobCanceled",
    "JobError",
    "JobFailed",
    "LeaseExpired",
    "LeaseRevoked",
    "MailboxFull",
    "MalformedBlueprint",
    "MalformedCouplings",
    "MalformedKind",
    "MalformedTable",
    "MessageRefused",
    "MethodNotAllowed",
    "NoBlobs",
    "NoHttp",
    "NoSecret",
    "NotAllowed",
    "NotExecuted",
    "NotGiven",
    "NotJson",
    "NotReady",
    "NotSigned",
    "NotSignedIn",
    "NotUtf8",
    "PlanRefused",
    "PruneRefused",
    "RecordExists",
    "RequestIdReused",
    "RequestTooLarge",
    "ResultNotReady",
    "RunnerError",
    "ScheduleExists",
    "SchemaMismatch",
    "SchemaTooNew",
    "SecretShownOnce",
    "ServerRefused",
    "SimulationExists",
    "SkewTooLarge",
    "StoreError",
    "StoreMisconfigured",
    "StoreTooOld",
    "StoreUnavailable",
    "TerminalState",
    "TooBusy",
    "TooLarge",
    "TooMany",
    "TookTooLong",
    "TransitionNotAllowed",
    "TransitionRefused",
    "Unexpected",
    "UnknownApproval",
    "UnknownArtifact",
    "UnknownAttempt",
    "UnknownBatch",
    "UnknownCache",
    "UnknownEvent",
    "UnknownJob",
    "UnknownKind",
    "UnknownLease",
    "UnknownLimit",
    "UnknownMachine",
    "UnknownName",
    "UnknownPage",
    "UnknownProfile",
    "UnknownRecord",
    "UnknownRecordKind",
    "UnknownRun",
    "UnknownSchedule",
    "UnknownSession",
    "UnknownSimulation",
    "UnknownState",
    "UnknownTask",
    "UnknownToken",
    "UnknownWorker",
    "UnknownWorkload",
    "UnsupportedMedia",
    "VersionChanged",
    "WaitTimeout",
    "WebhookOff",
    "WorkerError",
    "WorkloadFailed",
    "WrongHost",
    "WrongRunner",
]


def missing(module: ModuleType) -> list[str]:
    """The names that a module promises and does not have."""
    return [name for name in module.__all__ if not hasattr(module, name)]


def defined_in(source: str) -> list[str]:
    """The public functions and classes that a source text defines at its top."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = [node.name for node in ast.parse(source).body if isinstance(node, kinds)]
    return sorted(name for name in names if not name.startswith("_"))


def test_the_public_names_of_the_kernel_are_pinned() -> None:
    assert sorted(interlock.machine.__all__) == MACHINE


def test_the_public_names_of_the_errors_are_pinned() -> None:
    package = (interlock.errors, interlock.errors.base, interlock.errors.requests)
    assert sorted(name for module in package for name in defined_in(inspect.getsource(module))) == ERRORS
    assert [name for name in ERRORS if not hasattr(interlock.errors, name)] == []


def test_every_public_name_of_the_kernel_exists() -> None:
    assert missing(interlock.machine) == []


@pytest.mark.parametrize("names", [MACHINE, ERRORS])
def test_the_lists_above_are_sorted_and_name_nothing_twice(names: list[str]) -> None:
    assert names == sorted(set(names))


def test_a_promised_name_that_does_not_exist_would_be_noticed() -> None:
    module = ModuleType("example")
    vars(module).update({"__all__": ["here", "gone"], "here": 1})
    assert missing(module) == ["gone"]


def test_a_new_public_name_would_be_noticed() -> None:
    assert defined_in("class New: ...\ndef also(): ...\ndef _own(): ...\nx = 1") == ["New", "also"]


def public_api() -> Iterator[str]:
    """Yield a line for each public name, method, property and field."""
    for name, names in PROMISED.items():
        module = importlib.import_module(name)
        for each in sorted(names):
            yield from described(f"{name}.{each}", getattr(module, each))


def described(path: str, found: Any) -> Iterator[str]:
    """Yield the lines of a class, a function or a value."""
    if inspect.isclass(found):
        yield f"{path}: class"
        yield from (f"{path}.{line}" for line in sorted(set(members(found))))
    elif inspect.isroutine(found):
        yield f"{path}({parameters(found)})"
    else:
        yield f"{path}: value"


def members(found: type) -> Iterator[str]:
    """Yield the fields, properties and methods of a class, also those that it inherits from ours."""
    yield from (f"{field}: field" for field in getattr(found, "__struct_fields__", ()))
    names = {name for base in found.__mro__ if base.__module__.startswith("interlock") for name in vars(base)}
    for name in names - CALLED_BY_THE_WORKER:
        value = inspect.getattr_static(found, name)
        plain = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        constructor = name == "__init__" and found.__name__ in CONSTRUCTED
        if name.startswith("_") and not constructor:
            continue
        if inspect.isfunction(plain):
            yield f"{name}({parameters(plain)})"
        elif isinstance(value, property):
            yield f"{name}: property"


def parameters(function: Any) -> str:
    """Return the names of parameters; `=` marks a default, and behind `*` names are required."""
    shown: list[str] = []
    keywords = False
    for each in inspect.signature(function).parameters.values():
        if each.kind is inspect.Parameter.KEYWORD_ONLY and not keywords:
            shown.append("*")
        keywords |= each.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL)
        default = "" if each.default is inspect.Parameter.empty else "="
        shown.append(f"{STARS.get(each.kind, '')}{each.name}{default}")
    return ", ".join(shown)


def test_the_public_api_is_the_one_that_was_promised() -> None:
    pinned, found = PINNED.read_text(encoding="utf-8").splitlines(), list(public_api())
    assert sorted(set(pinned) - set(found)) == [], "gone or changed"
    assert sorted(set(found) - set(pinned)) == [], "new"


def test_a_removed_and_a_renamed_parameter_would_be_noticed() -> None:
    def old(work: str, /, *items: int, delay_s: float = 0.0, **more: int) -> None: ...
    def new(work: str, *, delay: float) -> None: ...

    assert parameters(old) == "work, *items, delay_s=, **more"
    assert parameters(new) == "work, *, delay"


if __name__ == "__main__":
    print("\n".join(public_api()))
