"""The error tree: what the docstring draws is what there is, and every error shows itself alike."""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import inspect
import pickle
import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.sources import statements

from interlock import errors
from interlock.errors import InterlockError, TooMany, TransitionRefused, UnknownName
from interlock.machine import Refusal, Refused


class Drawn(NamedTuple):
    """One line of the tree: a class, the one above it, and what it answers with."""

    name: str
    parent: str
    code: str
    status: int


_LINE = re.compile(
    r"^(?P<branch>[ │├└─]*)(?P<name>[A-Z]\w+)(?:\s+(?P<code>[A-Za-z_0-9]+)\s+(?P<status>\d{3})\b.*)?$"
)


def drawn_in(doc: str) -> list[Drawn]:
    """Read the tree out of a docstring. A class without a code stands for those below it."""
    tree: list[Drawn] = []
    above: list[tuple[int, str]] = []
    for line in doc.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        depth = len(found["branch"])
        above = [(width, name) for width, name in above if width < depth]
        parent = above[-1][1] if above else "Exception"
        above.append((depth, found["name"]))
        tree.append(Drawn(found["name"], parent, found["code"] or "", int(found["status"] or 0)))
    return tree


def classes_of_the_module() -> list[type[InterlockError]]:
    found = (thing for _, thing in inspect.getmembers(errors, inspect.isclass))
    return [thing for thing in found if issubclass(thing, InterlockError)]


def differences(tree: Iterable[Drawn], classes: Iterable[type[InterlockError]]) -> list[str]:
    """Where the drawing and the classes do not agree, one sentence each."""
    drawn = {entry.name: entry for entry in tree}
    real = {cls.__name__: cls for cls in classes}
    found = [f"{name} is drawn and does not exist" for name in drawn if name not in real]
    found += [f"{name} exists and is not drawn" for name in real if name not in drawn]
    for name in drawn.keys() & real.keys():
        entry, cls = drawn[name], real[name]
        own = [
            base.__name__ for base in cls.__bases__ if base.__module__ != "builtins" or cls is InterlockError
        ]
        if own != [entry.parent]:
            found.append(f"{name} is drawn below {entry.parent}")
        if entry.code and (entry.code, entry.status) != (cls.code, cls.status):
            found.append(f"{name} answers {cls.code} {cls.status}, not {entry.code} {entry.status}")
        if not entry.code and not cls.__subclasses__():
            found.append(f"{name} is drawn without a code and nothing is below it")
    return found


TREE = drawn_in(errors.__doc__ or "")
CLASSES = classes_of_the_module()


def test_the_tree_in_the_docstring_is_exactly_the_classes_of_the_module() -> None:
    assert differences(TREE, CLASSES) == []
    assert len(TREE) == len(CLASSES) > 10


def test_every_kind_of_staleness_in_the_tree_would_be_noticed() -> None:
    class Forgotten(InterlockError):
        """Nobody drew it."""

    lines = [entry for entry in TREE if entry.name not in ("CannotLoad", "AlreadyThere", "GuardRefused")]
    stale = [
        *lines,
        Drawn("Imagined", "InterlockError", "imagined", 418),
        Drawn("CannotLoad", "InterlockError", "cannot_load", 500),
        Drawn("AlreadyThere", "UnknownName", "already_there", 409),
        Drawn("GuardRefused", "TransitionRefused", "", 0),
    ]
    assert sorted(differences(stale, [*CLASSES, Forgotten])) == [
        "AlreadyThere is drawn below UnknownName",
        "CannotLoad answers cannot_load 422, not cannot_load 500",
        "Forgotten exists and is not drawn",
        "GuardRefused is drawn without a code and nothing is below it",
        "Imagined is drawn and does not exist",
    ]


def test_the_drawing_is_read_with_its_branches() -> None:
    tree = drawn_in(
        """Words before it.

    Top
    ├── Group
    │   └── Leaf              a_leaf       404  words
    └── Other                 other        422
    """
    )
    assert tree == [
        Drawn("Top", "Exception", "", 0),
        Drawn("Group", "Top", "", 0),
        Drawn("Leaf", "Group", "a_leaf", 404),
        Drawn("Other", "Top", "other", 422),
    ]


SOURCES = Path(__file__).parents[1] / "src", Path(__file__).parents[1] / "verification" / "src"
SIGNALS = {
    "interlock.agent.plugins.command.CommandFailed": "an operation of a workload, counted as failed",
    "interlock.agent.plugins.http.UnexpectedStatus": "an operation of a workload, counted as failed",
    "interlock.server.requests.ClientGone": "ends a request that nobody waits for",
    "interlock.store.postgres.failures.RolledBack": "an optimistic write, judged again",
    "interlock.store.sqlite.threads._BrokenError": "ends a transaction, and carries the error that is raised",
    "interlock.systems.fleet.histograms.CorruptHistogram": "a report of an agent that is flagged",
    "interlock.systems.runs.workflows.expressions.ConditionError": "becomes a fault of PlanRefused",
    "interlock.systems.runs.workflows.expressions.TemplateError": "becomes a fault of PlanRefused",
    "interlock.systems.runs.workflows.yaml_nodes._TooMuch": "becomes a fault of PlanRefused",
    "interlock.systems.runs.reports.report.DeliveryFailed": "kept in the report, which is tried again",
    "interlock.wire.json_values._BadNumber": "becomes NotJson",
    "interlock.worker.child_jobs.WaitsForChildren": "ends a handler past `except Exception`",
    "interlock.worker.waits.WaitsForSignal": "ends a handler past `except Exception`",
    "interlock.worker.context.TaskCancelled": "ends a handler past `except Exception`",
    "interlock.worker.extraction.Unreadable": "a cache that is left out",
    "interlock.worker.http.CannotDownload": "a cache that is left out",
    "interlock.worker.outcomes.StepFailed": "becomes the failure of the attempt",
    "interlock.worker.postponement.RetryAfter": "becomes the failure of the attempt",
    "interlock.worker.postponement.RetryAt": "becomes the failure of the attempt",
    "interlock.worker.postponement.Snooze": "ends a handler past `except Exception`",
}
"""Exceptions outside of the tree that never reach a user, each with what becomes of it."""
OF_TESTS = ("interlock.testing.", "interlock_verification.")
"""Raised to developers whose test or check fails; they have neither a code nor a status."""


INHERITING = re.compile(
    r"^ *class \w+\((?!msgspec\.Struct\b|Protocol\b|NamedTuple\b|StrEnum\b)", re.MULTILINE
)
"""Text without which no class has a base that may be an exception; such modules are not parsed."""


def exceptions_in(sources: Iterable[Path]) -> Iterator[str]:
    """Yield the full name of each exception class, by its bases as the source writes them."""
    bases: dict[str, list[str]] = {}
    for root in sources:
        for path in sorted(root.rglob("*.py")):
            module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
            if INHERITING.search(text := path.read_text(encoding="utf-8")):
                bases.update(classes_in(ast.parse(text), module))
    found = {f"builtins.{name}" for name, kind in vars(builtins).items() if is_exception(kind)}
    while more := {name for name, above in bases.items() if name not in found and found & set(above)}:
        yield from sorted(more)
        found |= more


def is_exception(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def classes_in(tree: ast.Module, module: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each class of a module with its bases, both by their full names."""
    nodes = [node for node in statements(tree) if isinstance(node, ast.ImportFrom | ast.ClassDef)]
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    known = {alias.asname or alias.name: f"{i.module}.{alias.name}" for i in imports for alias in i.names}
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    known |= {node.name: f"{module}.{node.name}" for node in classes}
    for node in classes:
        written = [ast.unparse(base) for base in node.bases]
        yield known[node.name], [known.get(name, f"builtins.{name}") for name in written]


@functools.cache
def all_exceptions() -> frozenset[str]:
    return frozenset(exceptions_in(SOURCES))


def test_no_error_is_declared_outside_of_the_tree() -> None:
    found = all_exceptions()
    elsewhere = {name for name in found if not name.startswith((f"{errors.__name__}.", *OF_TESTS))}
    assert f"{errors.__name__}.requests.TooBusy" in found
    assert elsewhere - SIGNALS.keys() == set(), "Declare it in interlock.errors, or say why no user meets it."
    assert SIGNALS.keys() - elsewhere == set()


def test_no_error_of_tests_and_verification_has_a_code() -> None:
    found = {name for name in all_exceptions() if name.startswith(OF_TESTS)}
    ours = {f"{cls.__module__}.{cls.__name__}" for cls in below(InterlockError)}
    assert len(found) > 10
    assert ours & found == set()


def below(kind: type[InterlockError]) -> Iterator[type[InterlockError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from below(child)


def test_an_error_outside_of_the_tree_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("from gone import Base\nclass A(ValueError): pass\n")
    text = "from mine import A\nclass B(A): pass\nclass Broken(Struct): pass\nclass C(Broken): pass\n"
    (tmp_path / "mine" / "more.py").write_text(text)
    assert set(exceptions_in([tmp_path])) == {"mine.A", "mine.more.B"}


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [cls.code for cls in CLASSES]
    assert len(codes) == len(set(codes))


def test_every_error_class_has_a_docstring() -> None:
    assert [cls.__name__ for cls in CLASSES if not (cls.__doc__ or "").strip()] == []


def make(cls: type[InterlockError]) -> InterlockError:
    """One error of each class, as the code raises it."""
    if issubclass(cls, UnknownName):
        return cls("opne", ("open", "closed"), where="door")
    if issubclass(cls, errors.TooMany):
        return cls("It went wrong.", retry_after_s=1.5, todo="Wait.", facts={"n": 1})
    return cls("It went wrong.", allowed=("a", "b"), todo="Do it right.", facts={"n": 1})


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_shows_itself_in_the_same_shape(cls: type[InterlockError]) -> None:
    error = make(cls)
    shown = error.as_dict()
    assert list(shown) == ["code", "status", "error", "facts", "allowed", "todo"]
    assert (shown["code"], shown["status"]) == (cls.code, cls.status)
    assert shown["error"] == error.sentence == str(error)
    assert shown["facts"] == error.facts
    assert shown["allowed"] == list(error.allowed)
    assert shown["todo"] == error.todo


def test_an_error_keeps_its_own_copy_of_the_facts() -> None:
    facts: dict[str, object] = {"n": 1}
    error = InterlockError("It went wrong.", facts=facts)
    facts["n"] = 2
    assert error.facts == {"n": 1}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_survives_the_way_to_another_process(cls: type[InterlockError]) -> None:
    """A worker process hands its errors back pickled; one that cannot be unpickled breaks the pool."""
    error = make(cls)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is cls
        assert twin.as_dict() == error.as_dict()


@pytest.mark.parametrize(
    ("cls", "noun"),
    [
        (errors.UnknownMachine, "machine"),
        (errors.UnknownState, "state"),
        (errors.UnknownEvent, "event"),
    ],
)
def test_an_unknown_name_lists_the_known_ones_and_guesses(cls: type[UnknownName], noun: str) -> None:
    error = cls("OPNE", ("open", "closed"), where="door")
    assert error.sentence == f"There is no {noun} 'OPNE' of door. Did you mean open?"
    assert error.allowed == ("open", "closed")
    assert error.todo == "Use one of: open, closed."
    assert error.facts == {noun: "OPNE", "known": ["open", "closed"]}


def test_a_name_that_resembles_nothing_gets_no_guess() -> None:
    assert errors.UnknownState("zzz", ("open",)).sentence == "There is no state 'zzz'."


class Door(StrEnum):
    OPEN = "open"


@pytest.mark.parametrize(
    ("kind", "cls"),
    [
        (Refusal.ALREADY_THERE, errors.AlreadyThere),
        (Refusal.TERMINAL, errors.TerminalState),
        (Refusal.NOT_ALLOWED, errors.TransitionNotAllowed),
        (Refusal.IGNORED, errors.EventIgnored),
        (Refusal.GUARD, errors.GuardRefused),
    ],
)
def test_each_kind_of_refusal_becomes_its_error_and_keeps_the_facts(
    kind: Refusal, cls: type[TransitionRefused]
) -> None:
    refused = Refused(kind, "door", Door.OPEN, "slam", "Not so loud.", ("close", "leave"), ("is_calm",))
    error = refused.error()
    assert type(error) is cls
    assert error.status == 409
    assert error.sentence == refused.sentence
    assert "door" in error.sentence
    assert "open" in error.sentence
    assert "Not so loud." in error.sentence
    assert error.allowed == ("close", "leave")
    assert error.todo == "In open the door accepts: close, leave."
    assert error.facts == {
        "machine": "door",
        "state": "open",
        "asked": "slam",
        "refusal": str(kind),
        "guards": ["is_calm"],
    }


def test_every_kind_of_refusal_has_an_error_and_every_refusing_error_a_kind() -> None:
    made = {type(Refused(kind, "door", Door.OPEN, "slam").error()) for kind in Refusal}
    assert made == set(TransitionRefused.__subclasses__())


def test_a_refusal_in_a_terminal_state_lists_no_allowed_events_and_advises_to_create_a_new_one() -> None:
    error = Refused(Refusal.TERMINAL, "door", Door.OPEN, "slam").error()
    assert error.allowed == ()
    assert error.todo == "In open the door accepts nothing more; create a new one."
    assert error.sentence.endswith(".")


@pytest.mark.parametrize(("seconds", "shown"), [(0.0123, "0.012"), (1.0, "1"), (9.94, "9.9"), (993.2, "994")])
def test_how_long_to_wait_is_said_without_an_exponent(seconds: float, shown: str) -> None:
    assert TooMany("", retry_after_s=seconds).todo == f"Wait for {shown} s, then continue."
