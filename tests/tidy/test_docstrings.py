"""Docstrings, comments, messages and pages are plain: a named subject, a verb, no indefinite pronoun."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.sources import BLOCKS, statements, tree_of
from tests.tidy.test_voice_of_pages import places_in

ROOT = Path(__file__).parents[2]
SOURCES = ("src", "verification/src")
MADE = ("_pb2.py", "_pb2_grpc.py")  # by `make proto`
LONGEST = 110
WIDTH = 72
"""Length of the first line of the docstring of a function; `LONGEST` holds for the others."""

_OPENINGS = """
What How Where Who Whoever Whom Whose Which Why When It There They Those
Nobody Somebody Someone Anybody Everybody Something Anything Everything Nothing
Or Nor And But So Likewise Either Neither
"""
OPENINGS = frozenset(_OPENINGS.split())
"""First words of a riddle: the subject or the verb is missing."""
NOT_VERBS = frozenset({"A", "An", "The", "All", "Whether", "This", "That", "One", "Its", "Always", "Never"})
"""First words that do not begin what a function does."""
THIRD_PERSON = re.compile(r"[A-Z][a-z]+[^su]s")
BANNED = re.compile(
    r"\b(whoever|whomever|whom|somebody|someone|anybody|nobody|everybody|such a one"
    r"|(?:after|at most|at least|by|every|for|of|than|up to) so (?:many|much|long|often|far))\b",
    re.IGNORECASE,
)
COLUMNS = frozenset({"what it is", "what is wrong", "what it is like"})
"""Columns of tables of the command line. `--columns` takes their names, so they stay."""
CODE = re.compile(r"^( *)```.*?^\1```|`[^`]*`", re.DOTALL | re.MULTILINE)
"""Blocks and words of a page that are code."""
COMMENT = re.compile(r"(?:^|\s)#\s(?P<text>[^\"']*)$")

WORD = re.compile(r"\w+")
NAMED = re.compile(r"`((?=[\w.]*[_.A-Z])[A-Za-z_][\w.]*)(?:\(\))?`")
"""Names of the code in a docstring: with an underscore, a dot or a capital."""
COMPOUND = re.compile(r"[A-Z]\w*[a-z0-9][A-Z]\w*")
"""A name such as `JobSpec`: no word of a sentence, as `Job` is."""
ELSEWHERE = frozenset(
    {
        *("ARCHITECTURE", "md", "manage", "on_commit", "qualname", "json_each", "pg_stat_activity"),
        *("PR_SET_DUMPABLE", "on_", "interlock_", "worker_"),
    }
)
"""Names and beginnings of names outside this repository, or of many at once."""

NOUNS = {"ranking", "testing", "tracing"}
"""Names of a field that end like a gerund. Migrations that have landed name `store/ranking.py`."""


class Doc(NamedTuple):
    """A docstring, and the kind of its owner: module, class, function, property or field."""

    place: str
    kind: str
    text: str


class Source(NamedTuple):
    """What the rules read of a module, which is parsed once."""

    path: Path
    docs: tuple[Doc, ...]
    texts: tuple[Doc, ...]
    lines: tuple[str, ...]


def source_from(path: Path, tree: ast.Module) -> Source:
    text = path.read_text(encoding="utf-8")
    docs, texts = tuple(docs_of(tree, path.name)), tuple(texts_of(tree, path.name))
    return Source(path, docs, texts, tuple(text.splitlines()))


@cache
def sources() -> tuple[Source, ...]:
    found = (path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py")))
    return tuple(source_from(path, tree_of(path)) for path in found if not path.name.endswith(MADE))


def docs_of(tree: ast.Module, name: str) -> Iterator[Doc]:
    open_ones: list[ast.AST] = [tree]
    while open_ones:
        owner = open_ones.pop()
        statements = [node for part in BLOCKS for node in getattr(owner, part, ())]
        for number, node in enumerate(statements):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                kind = kind_of(owner) if number == 0 else "field"
                yield Doc(f"{name}:{node.lineno}", kind, node.value.value.strip())
            open_ones.append(node)


def texts_of(tree: ast.Module, name: str) -> Iterator[Doc]:
    """Yield messages, reasons and help texts: literals of several words that are no docstrings."""
    docs = {id(node.value) for node in statements(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docs:
            continue
        if " " in node.value.strip():
            yield Doc(f"{name}:{node.lineno}", "text", node.value)


def kind_of(owner: ast.AST) -> str:
    match owner:
        case ast.Module():
            return "module"
        case ast.ClassDef():
            return "class"
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            decorators = [ast.unparse(decorator) for decorator in owner.decorator_list]
            if owner.name.startswith("test_") or any("callback" in one for one in decorators):
                return "title"  # the docstring explains a test, or is the help text of a program
            return "property" if any("property" in one for one in decorators) else "function"
    return "field"


def riddles_in(found: Iterable[Source]) -> list[str]:
    """Return the docstrings that do not begin with what is done, returned or described."""
    return [f"{doc.place}: {doc.text[:60]}" for source in found for doc in source.docs if is_riddle(doc)]


def is_riddle(doc: Doc) -> bool:
    first = re.match(r"[A-Za-z]+", doc.text)
    if first is None or first[0][0].islower():  # code, or the reason of a guard
        return False
    word = first[0]
    if doc.kind == "function" and (word in NOT_VERBS or THIRD_PERSON.fullmatch(word)):
        return True
    return word in OPENINGS or is_half_a_question(doc)


def is_half_a_question(doc: Doc) -> bool:
    """Return whether it begins with "Whether", which describes a value and neither a call nor a type."""
    return doc.text.startswith("Whether ") and doc.kind not in ("field", "property")


def half_questions_in(folders: Iterable[Path]) -> list[str]:
    """Return the functions and classes below folders that do not say what they return or are."""
    paths = (path for folder in folders for path in sorted(folder.rglob("*.py")))
    asking = (path for path in paths if '"""Whether' in path.read_text(encoding="utf-8"))
    docs = (doc for path in asking for doc in docs_of(tree_of(path), path.name))
    return [f"{doc.place}: {doc.text[:60]}" for doc in docs if is_half_a_question(doc)]


def pronouns_in(found: Iterable[Source]) -> list[str]:
    """Return the docstrings, comments and messages that name nothing as the subject."""
    docs = [
        f"{doc.place}: {word[0]}"
        for source in found
        for doc in (*source.docs, *source.texts)
        if (word := BANNED.search(doc.text))
    ]
    comments = [
        f"{source.path.name}:{number}: {word[0]}"
        for source in found
        for number, line in enumerate(source.lines, 1)
        if "#" in line and (comment := COMMENT.search(line)) and (word := BANNED.search(comment["text"]))
    ]
    return docs + comments


def in_other_words(found: Iterable[Source]) -> list[str]:
    """Return the docstrings, messages, reasons and help texts that are not in the words of the pages."""
    return [
        f"{text.place}: {place.partition(': ')[2]}"
        for source in found
        for text in (*source.docs, *source.texts)
        if text.text not in COLUMNS
        for place in places_in(CODE.sub("``", text.text))
    ]


def prose_of(path: Path) -> str:
    """Return the text of a page without its code, or a program whole."""
    text = path.read_text(encoding="utf-8")
    return CODE.sub("", text) if path.suffix == ".md" else text


def pronouns_on(pages: Iterable[Path]) -> list[str]:
    """Return the pages with a sentence that names nothing as the subject."""
    return [
        f"{page.name}: {word[0]}"
        for page in pages
        for word in BANNED.finditer(prose_of(page))
        if word[0] != "whom"
    ]


def pages() -> list[Path]:
    """Return what users read: the pages, the examples and the source of the dashboard."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "bench" / "README.md"]
    found += [*(ROOT / "examples").glob("*.py"), *(ROOT / "web" / "src").rglob("*.ts*")]
    return sorted(path for path in found if path.name not in ("CHANGELOG.md", "schema.ts"))


def strange_names_in(found: Sequence[Source], queries: Iterable[str]) -> list[str]:
    """Return the names in backticks that occur nowhere but in docstrings."""
    code = Counter(word for source in found for line in source.lines for word in WORD.findall(line))
    code.subtract(word for source in found for doc in source.docs for word in WORD.findall(doc.text))
    known = {word for word, number in code.items() if number > 0} | set(queries) | ELSEWHERE
    known |= {part for source in found for part in source.path.with_suffix("").parts}
    named = ((doc.place, name) for source in found for doc in source.docs for name in NAMED.findall(doc.text))
    return [f"{place}: {name}" for place, name in named if not known.issuperset(name.split("."))]


def unquoted_classes_in(found: Sequence[Source]) -> list[str]:
    """Return the docstrings that begin with the name of a class: a word that a rename has replaced."""
    code = "\n".join(line for source in found for line in source.lines)
    classes = set(re.findall(r"^ *class (\w+)", code, re.MULTILINE))
    openings = ((doc, COMPOUND.match(doc.text)) for source in found for doc in source.docs)
    return [f"{doc.place}: {first[0]}" for doc, first in openings if first and first[0] in classes]


def long_openings_in(found: Iterable[Source]) -> list[str]:
    """Return the docstrings whose first line is too long."""
    return [doc.place for s in found for doc in s.docs if len(doc.text.partition("\n")[0]) > LONGEST]


def wide_openings_in(found: Iterable[Source]) -> list[str]:
    """Return the functions whose docstring begins with a line that is wider than `WIDTH`."""
    functions = (doc for s in found for doc in s.docs if doc.kind == "function")
    return [doc.place for doc in functions if len(doc.text.partition("\n")[0]) > WIDTH]


def gerunds_in(found: Iterable[Source]) -> set[str]:
    """Return the names of modules and packages that are gerunds."""
    names = {s.path.parent.name if s.path.stem == "__init__" else s.path.stem for s in found}
    return {name for name in names if re.search(r"[a-z]{2,}ing$", name)} - NOUNS


def test_there_are_docstrings_to_read() -> None:
    assert sum(len(source.docs) for source in sources()) > 5000


def test_a_docstring_begins_with_a_verb_or_with_a_noun() -> None:
    assert riddles_in(sources()) == []


def test_no_function_of_the_tests_or_tools_is_described_by_half_a_question() -> None:
    """Those of the package and the verification are among the riddles."""
    assert (
        half_questions_in(ROOT / name for name in ("bench", "deploy", "docs", "examples", "tests", "tools"))
        == []
    )


def test_docstrings_comments_and_messages_name_their_subject() -> None:
    assert pronouns_in(sources()) == []


def test_docstrings_and_messages_are_in_the_words_of_the_pages() -> None:
    assert in_other_words(sources()) == []


def test_a_name_in_a_docstring_exists() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.sql")]
    assert strange_names_in(sources(), (word for text in texts for word in WORD.findall(text))) == []


def test_a_name_that_was_renamed_in_the_code_alone_would_be_noticed(tmp_path: Path) -> None:
    example = source_of(
        'def new_name() -> None:\n    """Call `old_name` and `new_name`, `plain` words."""', tmp_path
    )
    assert strange_names_in([example], ()) == ["example.py:2: old_name"]


def test_no_docstring_begins_with_the_unquoted_name_of_a_class() -> None:
    assert unquoted_classes_in(sources()) == []


def test_a_class_that_begins_a_docstring_would_be_noticed(tmp_path: Path) -> None:
    texts = (
        "JobClaim that it holds.",
        "`JobClaim` of a state.",
        "Claim that it holds.",
        "PostgreSQL is there.",
    )
    functions = "\n".join(f'def f():\n    """{text}"""' for text in texts)
    example = source_of(f"class Claim: ...\nclass JobClaim: ...\n{functions}\n", tmp_path)
    assert unquoted_classes_in([example]) == ["example.py:4: JobClaim"]


def test_pages_and_the_dashboard_name_their_subject() -> None:
    assert len(pages()) > 200
    assert pronouns_on(pages()) == []


def test_the_first_line_of_a_docstring_is_short() -> None:
    assert long_openings_in(sources()) == []


def test_the_summary_of_a_function_has_at_most_72_characters() -> None:
    """The rest stands in a second paragraph."""
    assert wide_openings_in(sources()) == []


def test_no_module_is_named_by_a_gerund() -> None:
    assert gerunds_in(sources()) == set()


def source_of(text: str, tmp_path: Path, name: str = "example.py") -> Source:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    return source_from(path, ast.parse(text))


@pytest.mark.parametrize(
    "text",
    [
        '"""What crosses a process."""',
        'class Order:\n    """Whoever has shown nothing that is any good."""',
        'class Order:\n    size: int\n    """How large it is."""',
        'def due() -> int:\n    """The jobs that are ready."""',
        'def due() -> int:\n    """Returns the ready jobs."""',
        'def due() -> bool:\n    """Whether a job is ready."""',
        'class Company:\n    """Whether other claimers are active."""',
        'class Order:\n    @property\n    def size(self) -> int:\n        """Where it stands."""',
    ],
)
def test_a_riddle_would_be_noticed(text: str, tmp_path: Path) -> None:
    assert len(riddles_in([source_of(text, tmp_path)])) == 1


@pytest.mark.parametrize(
    "text",
    [
        '"""Structs that cross a process."""',
        'class Order:\n    """An order."""\n\n    size: int\n    """Size in bytes."""',
        'def due() -> int:\n    """Return the ready jobs."""',
        'async def pause() -> None:\n    """Pass the order on."""',
        'class Order:\n    @property\n    def size(self) -> int:\n        """The size in bytes."""',
        'class Order:\n    @property\n    def paid(self) -> bool:\n        """Whether it is paid."""',
        'class Order:\n    """An order."""\n\n    paid: bool\n    """Whether it is paid."""',
        'def in_time(lease: object) -> bool:\n    """the lease has expired"""',
        'x = "What is this?"',
    ],
)
def test_plain_docstrings_are_left_alone(text: str, tmp_path: Path) -> None:
    assert riddles_in([source_of(text, tmp_path)]) == []


@pytest.mark.parametrize(
    "text",
    [
        'class Order:\n    """An order that somebody gives."""',
        "x = 1  # nobody reads it",
        "# Whoever waits is told.\nx = 1",
        'LIMIT = 3\n"""Each agent ends after so many."""',
        'raise ValueError(f"Stop whoever listens at {port}.")',
    ],
)
def test_a_pronoun_without_a_name_would_be_noticed(text: str, tmp_path: Path) -> None:
    assert len(pronouns_in([source_of(text, tmp_path)])) == 1


def test_half_a_question_below_a_folder_would_be_noticed(tmp_path: Path) -> None:
    half = '"""Whether it is due."""'
    text = f"def due() -> bool:\n    {half}\n\nclass Job:\n    late: bool\n    {half}\n"
    source_of(text, tmp_path, "below/example.py")
    source_of("def due() -> bool:\n    ...\n", tmp_path, "below/other.py")
    assert half_questions_in([tmp_path]) == ["example.py:2: Whether it is due."]


@pytest.mark.parametrize(
    "text",
    [
        'raise ValueError(f"git {what} answers with more than {most} bytes.")',
        'TODO = "Leave out the reference back to what it is part of."',
        'state(PAUSED, "It goes on when it is resumed.", turn="user")',
        'def due() -> int:\n    """Return the number of jobs.\n\n    It goes on.\n    """',
    ],
)
def test_a_text_in_other_words_would_be_noticed(text: str, tmp_path: Path) -> None:
    assert len(in_other_words([source_of(text, tmp_path)])) == 1


@pytest.mark.parametrize(
    "text", ['"""Run `job what is` first."""', 'x = "nobody"', 'x = "what it is"', "# It goes on.\nx = 1"]
)
def test_words_columns_code_and_comments_are_left_alone(text: str, tmp_path: Path) -> None:
    assert in_other_words([source_of(text, tmp_path)]) == []


def test_a_page_without_a_subject_would_be_noticed_but_not_its_code(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Whoever waits.\n\n```py\nnobody = 1\n```\n\nA `somebody` and nobody.\n")
    assert pronouns_on([page]) == ["page.md: Whoever", "page.md: nobody"]


@pytest.mark.parametrize("text", ['x = "nobody"', "# So many callers share it.\nx = 1", 'x = "#nobody"'])
def test_other_texts_are_left_alone(text: str, tmp_path: Path) -> None:
    assert pronouns_in([source_of(text, tmp_path)]) == []


def test_a_long_first_line_would_be_noticed(tmp_path: Path) -> None:
    assert long_openings_in([source_of(f'"""{"x" * 111}"""', tmp_path)]) == ["example.py:1"]
    assert long_openings_in([source_of(f'"""{"x" * 110}\n\n{"x" * 200}\n"""', tmp_path)]) == []


def test_a_wide_first_line_of_a_function_would_be_noticed(tmp_path: Path) -> None:
    wide, whole = f'"""{"x" * 73}"""', f'"""{"x" * 72}\n\n    {"x" * 80}\n    """'
    text = f"{wide}\nclass A:\n    {wide}\n    def f():\n        {wide}\n    def g():\n        {whole}\n"
    assert wide_openings_in([source_of(text, tmp_path)]) == ["example.py:5"]


def test_a_gerund_would_be_noticed(tmp_path: Path) -> None:
    names = ("hearing.py", "ring.py", "reporting/__init__.py", "testing/__init__.py", "settings.py")
    found = [source_of("", tmp_path, name) for name in names]
    assert gerunds_in(found) == {"hearing", "reporting"}
