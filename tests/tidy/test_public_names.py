"""The names that others rely on. Changing one is a decision, so it is made here as well."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType

import pytest

import interlock.errors
import interlock.machine

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
