"""Make the generated files: docs/lifecycles/, parts of docs/reference/, web/openapi.json, the help texts
of the command line, and the index of decisions.

    python docs/generate.py           write them
    python docs/generate.py --check   write nothing; exit 1 when a page is stale, missing or surplus

docs/lifecycles/, docs/reference/command-line/ and docs/reference/http-api/ are generated as a whole, so
another file there is surplus. Pages written by hand may stand beside the generated ones in docs/reference/.
The dashboard's types are made from web/openapi.json, so a change of the API that it does not know fails its
type check.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from docs import http_examples
from docs.decision_index import FOLDER, index_page
from docs.references import NOUNS, help_file, help_file_of_verification, reference_pages

from interlock import errors
from interlock.api import kinds
from interlock.api.operation import Operation
from interlock.api.table import NOUNS as API_NOUNS
from interlock.api.table import declared_in
from interlock.cli.files import write_whole
from interlock.cli.machine_names import consequences_of
from interlock.errors import InterlockError
from interlock.lifecycles import COUPLINGS, MACHINES, interlocking
from interlock.machine import Blueprint, Coupling, blueprint_of
from interlock.machine.check import MEANINGS
from interlock.machine.draw import draw_svg
from interlock.machine.draw.markdown import GENERATED, code, draw_markdown, markdown_table, prose
from interlock.machine.draw.text import first_sentence
from interlock.server.app import every_route
from interlock.server.grafana import dashboard
from interlock.server.openapi import document_of
from interlock.systems.runs.workflows.schema import key_rows, name_rows, sections, workflow_schema
from interlock.wire import metrics
from interlock.wire.access import MEANINGS as ROLES
from interlock.wire.metrics import Metric

REPOSITORY = Path(__file__).parents[1]
API_PAGES = "reference/http-api"
"""The folder with a page for each noun of the API."""
GENERATED_FOLDERS = ("lifecycles", NOUNS, API_PAGES)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the pages; the answer is the exit code."""
    parser = argparse.ArgumentParser(description="Make docs/lifecycles, docs/reference and web/openapi.json.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when pages are stale")
    parser.add_argument(
        "--into", type=Path, default=REPOSITORY, metavar="DIR", help="default: the repository"
    )
    chosen = parser.parse_args(arguments)
    if chosen.check:
        return _report(find_problems(chosen.into))
    changed = write_pages(chosen.into)
    print("\n".join(f"docs: {change}" for change in changed) or "docs: nothing to change")
    return 0


def find_problems(root: Path) -> list[str]:
    """Each page under `root` that is not as it would be written now."""
    made = pages()
    return [
        *(f"missing {name}" for name in made if not (root / name).is_file()),
        *(f"stale {name}" for name, text in made.items() if _differs(root / name, text)),
        *(f"surplus {name}" for name in _surplus(root, made)),
    ]


def write_pages(root: Path) -> list[str]:
    """Write every page whose text has changed and remove the surplus ones; says which."""
    made = pages()
    changed = {n: text for n, text in made.items() if not (root / n).is_file() or _differs(root / n, text)}
    for name, text in changed.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(root / name, text)
    surplus = _surplus(root, made)
    for name in surplus:
        (root / name).unlink()
    return [*(f"wrote {name}" for name in changed), *(f"removed {name}" for name in surplus)]


def pages() -> dict[str, str]:
    """Return the text of every generated file, by its path in the repository."""
    made = {f"docs/{name}": text for name, text in _docs().items()}
    return made | {
        f"{FOLDER}/README.md": index_page(REPOSITORY),
        "src/interlock/cli/help.txt": help_file(),
        "verification/src/interlock_verification/help.txt": help_file_of_verification(),
        "web/openapi.json": _json(document_of(every_route()), indent=1),
    }


def _docs() -> dict[str, str]:
    blueprints = [blueprint_of(machine) for machine in MACHINES.values()]
    made = {
        "lifecycles/README.md": _index(blueprints),
        "lifecycles/interlocking.svg": draw_svg(interlocking()),
        "reference/machine-checks.md": _checks_page(),
        "reference/errors.md": _errors_page(),
        **_api_pages(),
        "reference/metrics.md": _metrics_page(),
        "grafana/interlock.json": _json(dashboard()),
        "reference/workflow.md": _workflow_page(),
        "reference/workflow.schema.json": _json(workflow_schema()),
        **reference_pages(),
    }
    for blueprint in blueprints:
        name = blueprint.machine
        page = draw_markdown(blueprint, picture=f"{name}.svg", consequences=consequences_of(blueprint))
        made[f"lifecycles/{name}.md"] = page
        made[f"lifecycles/{name}.svg"] = draw_svg(blueprint)
    return made


def _json(value: object, indent: int = 2) -> str:
    return f"{json.dumps(value, indent=indent, ensure_ascii=False)}\n"


def _differs(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() != text.encode()


def _surplus(root: Path, made: Mapping[str, str]) -> list[str]:
    folders = (root / "docs" / name for name in GENERATED_FOLDERS)
    found = (path for folder in folders for path in sorted(folder.glob("*")) if path.is_file())
    return [name for path in found if (name := path.relative_to(root).as_posix()) not in made]


def _report(problems: Sequence[str]) -> int:
    for problem in problems:
        print(f"docs: {problem}", file=sys.stderr)
    if problems:
        print("→ Run: make docs", file=sys.stderr)
    return 1 if problems else 0


def _index(blueprints: Sequence[Blueprint]) -> str:
    def row(blueprint: Blueprint) -> tuple[str, ...]:
        ends = [state.name for state in blueprint.states if state.terminal]
        name = prose(blueprint.machine)
        return (
            f"[{name}]({name}.md)",
            prose(first_sentence(blueprint.doc)),
            str(len(blueprint.states)),
            code(*ends),
        )

    lines = [GENERATED, "", "# Lifecycles", ""]
    lines += [
        "Each lifecycle is a table in `src/interlock/lifecycles/`; its page is generated from it.",
        "",
    ]
    lines += markdown_table(("machine", "meaning", "states", "terminal states"), map(row, blueprints))
    lines += ["", "## How they are coupled", ""]
    lines += ["![Events that transitions of one machine send to another](interlocking.svg)", ""]
    lines += ["A transition of one machine causes events of another.", *_couplings()]
    return _page(lines)


def _couplings() -> Iterator[str]:
    def cause(coupling: Coupling[Any]) -> str:
        return coupling.cause.name

    order = {name: place for place, name in enumerate(MACHINES)}
    in_order = sorted(COUPLINGS, key=lambda coupling: order.get(cause(coupling), len(order)))
    for name, group in groupby(in_order, cause):
        rows = ((prose(c.sentence), f"[{c.effect.name}]({c.effect.name}.md)", prose(c.why)) for c in group)
        yield from ("", f"### {name}", "")
        yield from markdown_table(("when, and what follows", "moves", "why"), rows)


def _metrics_page() -> str:
    def row(metric: Metric) -> tuple[str, ...]:
        return code(metric.name), metric.kind, code(*metric.labels), prose(metric.says)

    lines = [GENERATED, "", "# Metrics", ""]
    lines += [
        "Prometheus metrics. [The dashboard for Grafana](../grafana/interlock.json) uses all of them.",
        "",
        "## Metrics of a server, at `/metrics`",
        "",
        "Every server counts the whole journal: for several servers take the maximum, not the sum. Requests,",
        "request ids and pruned records are counted by each server for itself.",
        "",
    ]
    lines += markdown_table(("name", "kind", "labels", "meaning"), map(row, metrics.SERVER))
    lines += ["", "## Metrics of a worker, with `--metrics-port`", ""]
    lines += markdown_table(("name", "kind", "labels", "meaning"), map(row, metrics.WORKER))
    return _page(lines)


def _checks_page() -> str:
    lines = [GENERATED, "", "# Checks of a table", ""]
    lines += [
        "A table is checked when it is declared. Faults raise `MalformedTable`, all at once.",
        "",
    ]
    lines += ["`interlock machine check module:object` prints them.", ""]
    lines += markdown_table(("code", "fault"), ((code(c), prose(m)) for c, m in MEANINGS.items()))
    return _page(lines)


def _errors_page() -> str:
    def row(kind: type[InterlockError]) -> tuple[str, ...]:
        return (code(kind.__name__), code(kind.code), str(kind.status), prose(kind.__doc__ or ""))

    lines = [GENERATED, "", "# Errors", ""]
    opening = "Every error of the API, with its code and its HTTP status. In Python each is a class of "
    lines += [f"{opening}`interlock.errors`.", ""]
    lines += markdown_table(("error", "code", "status", "meaning"), map(row, _family(InterlockError)))
    return _page(lines)


def _api_pages() -> dict[str, str]:
    """Return the page with all operations, and one for each noun with a request of each operation."""
    lines = [GENERATED, "", "# HTTP API", ""]
    lines += [
        "Every operation of the server, by noun. The page of a noun has the input, the output and the errors",
        "of its operations, and a request of each with the answer. `/openapi.json` of a server has the same",
        "with all schemas, and with the operations of the kinds that you have declared.",
        "",
        "The input is the query of a GET and the JSON body of any other request. An operation whose input",
        "has a `request_id` is idempotent: it is done once under that id, however often it is sent. The",
        "header `Idempotency-Key` is the same. Errors are `application/problem+json` with one of the codes",
        "of the operation, see [errors](errors.md). Any operation that needs a role can be answered with",
        "`not_signed_in`, `not_allowed`, `too_many_requests` and `too_busy`, and any input",
        "with `bad_request`.",
        "",
        "The requests were sent to a real server, and the tests send them again. It needed no token there;",
        "elsewhere add `-H 'Authorization: Bearer il_...'`. In an answer, `…` stands for more of the same.",
        "",
        "| role | meaning |",
        "|---|---|",
        *(f"| {role} | {prose(meaning)} |" for role, meaning in ROLES.items()),
    ]
    examples = http_examples.read()
    pages = {}
    for noun in (*API_NOUNS, kinds):
        name = noun.__name__.rpartition(".")[2]
        page, title = f"{name.replace('_', '-')}.md", name.replace("_", " ").capitalize()
        rows = (
            (
                f"[{code(each.name)}](http-api/{page}#{_anchor(each.name)}): {prose(each.summary)}",
                code(f"{each.method} {each.path}"),
                str(each.role or ""),
            )
            for each in declared_in(noun)
        )
        lines += ["", f"## {title}", "", prose(noun.__doc__ or ""), ""]
        lines += markdown_table(("operation", "request", "role"), rows)
        about = [GENERATED, "", f"# {title}", "", prose(noun.__doc__ or "")]
        for each in declared_in(noun):
            about += ["", *_operation(each, examples.get(each.name))]
        pages[f"{API_PAGES}/{page}"] = _page(about)
    return {f"{API_PAGES}.md": _page(lines), **pages}


def _operation(operation: Operation[Any, Any], example: http_examples.Example | None) -> Iterator[str]:
    facts = {
        "role": str(operation.role or "none"),
        "input": _structs(operation.query or operation.bodies),
        "output": _structs(operation.answers) or code(operation.media),
        "errors": ", ".join(code(error.code) for error in operation.errors),
    }
    yield from (
        f"## {code(operation.name)}",
        "",
        f"{code(f'{operation.method} {operation.path}')}: {prose(operation.summary)}",
        "",
    )
    yield from markdown_table(tuple(facts), [tuple(facts.values())])
    if example is not None:
        yield from ("", *http_examples.shown(example))


def _anchor(name: str) -> str:
    return re.sub(r"[^\w-]", "", name.lower())


def _structs(types: Any) -> str:
    found = types if isinstance(types, tuple) else (types,)
    return " or ".join(code(each.__name__) for each in found)


def _workflow_page() -> str:
    lines = [GENERATED, "", "# Workflow files", ""]
    lines += [
        "A workflow is a file `.interlock/NAME.yml` of a repository, or any file passed with",
        "`interlock run submit --workflow FILE`. For completion in editors, begin the file with",
        "`# yaml-language-server: $schema=` and the address of",
        "[workflow.schema.json](workflow.schema.json).",
        "[Your own CI](../guides/your-own-ci.md) shows how to use workflows.",
        "",
        "Text is taken literally, so `3.10` stays `3.10`. Only `true` and `false` are booleans.",
    ]
    for name, described in sections():
        lines += ["", f"## `{name}`", ""]
        lines += [described.doc, ""] if described.doc else []
        rows = (
            (code(key), prose(kind), prose(doc), code(eg) if eg else "")
            for key, kind, doc, eg in key_rows(described)
        )
        lines += markdown_table(("key", "value", "meaning", "for example"), rows)
    lines += [
        "",
        "## Conditions",
        "",
        "Conditions for `if`. A value alone is true unless it is empty or `false`.",
        "",
    ]
    lines += markdown_table(("word", "meaning"), ((code(word), prose(doc)) for word, doc in name_rows()))
    lines += ["", "## Expressions in texts", ""]
    lines += [
        "`${{ matrix.NAME }}` is replaced in every text of a job. Values of the change are replaced only in",
        "`env` and in `concurrency.group`, never in `run`: the name of a branch could contain a command.",
        "Steps read them from variables: `INTERLOCK_EVENT`, `INTERLOCK_BRANCH`, … for the names above,",
        "`INTERLOCK_INPUT_NAME` for each input, and `INTERLOCK_JOB`.",
        "",
        "## Patterns",
        "",
        "`*` matches anything within a path component, `**` any number of components, `?` one character;",
        "`docs/` matches everything below docs. A pattern with `!` before it excludes its matches. The last",
        "match decides.",
    ]
    return _page(lines)


def _family(kind: type[InterlockError]) -> Iterator[type[InterlockError]]:
    """A class and all below it, each branch in the order of the source."""
    yield kind
    for child in kind.__subclasses__():
        if child.__module__.startswith(errors.__name__):
            yield from _family(child)


def _page(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
