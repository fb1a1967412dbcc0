"""A name means one class or one type, and a variable is named by what it holds."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.sources import statements, tree_of

ROOT = Path(__file__).parents[2]
SOURCES = ("src", "verification/src")
SHARED = {
    "Entry": "public: a row of a table as a page shows it, and a note as the journal keeps it",
    "FlakyError": "public, and what handlers of checks raise: rules of failures know it by its name",
    "Failed": "on the wire: how an attempt, and how a simulation, reports its failure",
    "Fault": "public: a mistake in a table, and a failure that a test injects",
    "Interlock": "public: the client, with and without await",
    "Plan": "public and on the wire: the faults of a test, and the jobs of a run",
}
"""Names of several classes, with why none of them can change."""
VAGUE = frozenset({"told", "said", "heard", "asked"})
"""Names that say that something was sent or received, and not what it is."""
VAGUE_LEFT = 12
"""How often variables, parameters and attributes still have such a name. The number may only shrink."""


def shared_names(files: Iterable[Path]) -> dict[str, list[str]]:
    """Return the names of more than one class, with the files that define them.

    Events do not count: an event has the name that its table gives it, such as `Heartbeat` of leases and of
    workers.
    """
    homes: dict[str, list[str]] = defaultdict(list)
    for path in files:
        for node in statements(tree_of(path)):
            if isinstance(node, ast.ClassDef) and not _is_event(node):
                homes[node.name].append(path.name)
    return {name: sorted(found) for name, found in homes.items() if len(found) > 1}


def _is_event(node: ast.ClassDef) -> bool:
    return any(ast.unparse(each).startswith("event(") for each in node.decorator_list)


def test_no_two_classes_share_a_name_and_no_exception_outlives_its_reason() -> None:
    shared = shared_names(path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py")))
    assert {name: files for name, files in shared.items() if name not in SHARED} == {}
    assert sorted(shared) == sorted(SHARED)


def test_a_second_class_of_a_name_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class A: ...\nclass B: ...\n")
    (tmp_path / "two.py").write_text("def f():\n    class A: ...\n@event(Kind.TIMER)\nclass B: ...\n")
    assert shared_names(sorted(tmp_path.iterdir())) == {"A": ["one.py", "two.py"]}


ALIASES = {
    "Outcome": "how a commit ended in a store, and how an attempt ended in a worker",
    "Work": "what a store commits, and, in signatures of users, what a client submits",
}
"""Type aliases that several modules declare, with why they stay."""
ALIASES_AND_CLASSES = {
    "Answer": "public: a claim about an event in a check of users, and the reply to a message of a runner",
    "Decision": "public: what a table decides, and what a decider of the engine commits",
    "Message": "the messages of two protocols, of runners and of agents; no module imports both",
    "Operation": "public: one operation of a load, and one of the HTTP API",
    "Owner": "the owners that tables name are public; to a cascade the owner of a part is any object",
    "Refusal": "public: the kinds of refusal; a cascade returns such a refusal or None",
}
"""Names of a type alias and of a class, with why both stay."""
EVENTS_AND_CLASSES = {
    "Ack": "on the wire: the message of a runner that brings this event of a lease",
    "CancelAck": "on the wire: the message of a runner that brings this event of a lease",
    "Complete": "on the wire: the message of a runner that brings this event of a lease",
    "Completed": "on the wire: the message about a simulation whose attempt has completed",
    "Heartbeat": "on the wire: the message of a runner that brings this event of a lease",
    "LeaseExpired": "public: the error of a report under such a lease, and an event of a task on its worker",
    "Release": "on the wire: the message of a runner that brings this event of a lease",
    "TaskCancelled": "public: what a handler raises; the event has the name of a message of agents",
}
"""Names of an event and of a class that is none, with why both stay."""
_GENERIC = re.compile(
    r"(?:Awaitable|Callable|dict|Generator|list|Literal|Mapping|Sequence|tuple|type|Union)\["
)


def shared_aliases(files: Iterable[Path]) -> dict[str, list[str]]:
    """Return the type aliases that several files declare.

    Arguments of commands and limits of values (`Annotated[…]`) do not count: they stand in one signature.
    """
    homes: dict[str, list[str]] = defaultdict(list)
    for path in files:
        for name in aliases_in(path):
            homes[name].append(path.name)
    return {name: sorted(found) for name, found in homes.items() if len(found) > 1}


def aliases_in(path: Path) -> Iterator[str]:
    """Yield the names of type aliases of a file: `X: TypeAlias = …`, and `X = Callable[…]`."""
    for node in tree_of(path).body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _GENERIC.match(ast.unparse(value)):
                yield name


def aliases_of_classes(files: Sequence[Path]) -> dict[str, list[str]]:
    """Return the names of type aliases that are names of classes as well, with the files of both."""
    homes: dict[str, set[str]] = defaultdict(set)
    names: set[str] = set()
    for path in files:
        for name in aliases_in(path):
            names.add(name)
            homes[name].add(path.name)
        for node in _classes(path):
            homes[node.name].add(path.name)
    classes = {node.name for path in files for node in _classes(path)}
    return {name: sorted(homes[name]) for name in names & classes}


def events_of_classes(files: Iterable[Path]) -> dict[str, list[str]]:
    """Return the names of events that other classes have as well, with the files of all of them."""
    homes: dict[str, set[str]] = defaultdict(set)
    events: set[str] = set()
    others: set[str] = set()
    for path in files:
        for node in _classes(path):
            homes[node.name].add(path.name)
            (events if _is_event(node) else others).add(node.name)
    return {name: sorted(homes[name]) for name in events & others}


def _classes(path: Path) -> Iterator[ast.ClassDef]:
    return (node for node in statements(tree_of(path)) if isinstance(node, ast.ClassDef))


def test_no_two_type_aliases_share_a_name_without_a_reason() -> None:
    found = shared_aliases(path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py")))
    assert {name: files for name, files in found.items() if name not in ALIASES} == {}
    assert sorted(found) == sorted(ALIASES)


def test_no_type_alias_has_the_name_of_a_class_without_a_reason() -> None:
    found = aliases_of_classes([path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py"))])
    assert {name: files for name, files in found.items() if name not in ALIASES_AND_CLASSES} == {}
    assert sorted(found) == sorted(ALIASES_AND_CLASSES)


def test_no_event_has_the_name_of_another_class_without_a_reason() -> None:
    found = events_of_classes(path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py")))
    assert {name: files for name, files in found.items() if name not in EVENTS_AND_CLASSES} == {}
    assert sorted(found) == sorted(EVENTS_AND_CLASSES)


def test_an_alias_and_an_event_with_the_name_of_a_class_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("A: TypeAlias = int | str\n@event(Kind.TIMER)\nclass B: ...\n")
    (tmp_path / "two.py").write_text("class A: ...\nclass B: ...\n@event(Kind.TIMER)\nclass C: ...\n")
    (tmp_path / "three.py").write_text("C: TypeAlias = int | str\n@event(Kind.TIMER)\nclass B: ...\n")
    files = sorted(tmp_path.iterdir())
    assert aliases_of_classes(files) == {"A": ["one.py", "two.py"], "C": ["three.py", "two.py"]}
    assert events_of_classes(files) == {"B": ["one.py", "three.py", "two.py"]}


def test_a_second_alias_of_a_name_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("A: TypeAlias = int | str\nB = Callable[[], int]\nC = make()\n")
    (tmp_path / "two.py").write_text(
        "A = Literal['a']\nB: TypeAlias = 'int'\nC: int = 1\nD = Annotated[int, 1]\n"
    )
    assert shared_aliases(sorted(tmp_path.iterdir())) == {
        "A": ["one.py", "two.py"],
        "B": ["one.py", "two.py"],
    }


GERUNDS = frozenset(
    {
        *("Binding", "Coupling", "Drawing", "Heading", "Timing", "Wiring"),  # nouns, in spite of their end
        *("Finding", "Greeting", "Incoming", "Reporting", "Standing", "Waiting"),  # on the wire, or settings
    }
)


def gerunds(files: Iterable[Path]) -> set[str]:
    """Return the last words of names of classes that end like a gerund: a class is named by a noun."""
    found = set()
    for path in files:
        for node in statements(tree_of(path)):
            if isinstance(node, ast.ClassDef) and not _is_event(node):
                last = re.findall("[A-Z][a-z0-9]*|[a-z0-9]+", node.name)[-1]
                found |= {last} if last.endswith("ing") else set()
    return found


def test_no_class_is_named_by_a_gerund() -> None:
    files = [path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py"))]
    assert gerunds(files) == GERUNDS


def test_a_class_named_by_a_gerund_would_be_noticed(tmp_path: Path) -> None:
    example = tmp_path / "example.py"
    example.write_text(
        "class JobWaiting: ...\nclass _Packing: ...\nclass Ring0: ...\n@event()\nclass Ending: ...\n"
    )
    assert gerunds([example]) == {"Waiting", "Packing"}


def vague_names(files: Iterable[Path]) -> list[str]:
    """Return where a variable, a parameter or an attribute gets a name that does not say what it holds."""
    found = []
    for path in files:
        code = path.read_text(encoding="utf-8")
        nodes = ast.walk(tree_of(path)) if any(word in code for word in VAGUE) else ()
        found += [
            f"{path.name}:{getattr(node, 'lineno', 0)}"
            for node in nodes
            if _bound_name(node).strip("_") in VAGUE
        ]
    return found


def _bound_name(node: ast.AST) -> str:
    match node:
        case (
            ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name)
        ):
            return name
    return ""


def test_the_number_of_vague_variable_names_does_not_grow() -> None:
    found = vague_names(path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py")))
    assert len(found) <= VAGUE_LEFT, (
        f"Name these by what they hold; {VAGUE_LEFT} are left from before: {found}"
    )


def test_a_vague_name_would_be_noticed(tmp_path: Path) -> None:
    example = tmp_path / "example.py"
    example.write_text("def f(said):\n    told = said\n    self._asked = told\n    return told.heard\n")
    assert vague_names([example]) == ["example.py:1", "example.py:2", "example.py:3"]


HEARSAY = frozenset({"told", "said", "heard", "says", "hears", "nobody", "somebody", "whoever"})
"""Words of a function or a class that name neither what it does nor what it is."""
HEARSAY_LEFT = frozenset(
    {
        "Heard",  # these four are structs of the wire: their names are in the OpenAPI document
        "NotHeard",
        "SaidOfSimulation",
        "WorkloadsHeard",
        "was_told",  # a guard: pages and comparisons of tables show its name
    }
)


def named_by_hearsay(files: Iterable[Path]) -> set[str]:
    """Return the functions and classes whose name has a word that says only that something was sent."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    nodes = (node for path in files for node in statements(tree_of(path)))
    names = {node.name for node in nodes if isinstance(node, kinds) and not node.name.startswith("test_")}
    return {name for name in names if HEARSAY.intersection(words_of(name))}


def words_of(name: str) -> list[str]:
    """Return the words of `a_name` or of `AName`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")


def test_no_further_function_or_class_is_named_by_hearsay() -> None:
    files = [path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py"))]
    assert named_by_hearsay(files) == HEARSAY_LEFT


def test_a_name_of_hearsay_would_be_noticed(tmp_path: Path) -> None:
    example = tmp_path / "example.py"
    example.write_text("def was_said(): ...\nclass NotHeard: ...\nclass Afraid: ...\ndef hear_say(): ...\n")
    assert named_by_hearsay([example]) == {"was_said", "NotHeard"}


NO_SUBJECT = frozenset({"what", "it", "they", "who", "whoever"})
RIDDLES = frozenset({"nobody", "somebody", "whoever", "told", "heard"})


def riddles_in(files: Iterable[Path]) -> list[str]:
    """Return the names of tests that do not begin with a thing, or leave open who does what."""
    found = []
    for path in files:
        for node in statements(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                words = node.name.split("_")[1:]
                if words[0] in NO_SUBJECT or RIDDLES.intersection(words):
                    found.append(f"{path.name}: {node.name}")
    return found


def test_the_name_of_a_test_is_a_sentence_about_a_thing() -> None:
    suites = (ROOT / "tests").rglob("test_*.py"), (ROOT / "src" / "interlock" / "testing").rglob("*.py")
    assert [riddles_in(files) for files in suites] == [[], []]


def test_a_test_named_by_a_riddle_would_be_noticed(tmp_path: Path) -> None:
    example = tmp_path / "example.py"
    names = ("what_is_done_counts", "a_job_counts", "a_worker_is_told", "it_ends", "a_store_opens")
    example.write_text("\n".join(f"def test_{name}() -> None: ..." for name in names))
    assert riddles_in([example]) == [
        "example.py: test_what_is_done_counts",
        "example.py: test_a_worker_is_told",
        "example.py: test_it_ends",
    ]
