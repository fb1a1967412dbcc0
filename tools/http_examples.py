"""Record a request of every operation of the HTTP API, and its answer: part of `make sessions`.

    python tools/http_examples.py                     all operations, into docs/http_examples.json
    python tools/http_examples.py submitJobs getJob   only these operations

The requests are those of the fuzzer: the example that the OpenAPI document shows, with the ids of records
that exist (tests/server/fuzzing). Each goes to a server of its own, whose clock stands still; `place` says
how far along the job is there. Answers are shortened for the page, and the fuzzer is called ada there.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import requests

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from docs.http_examples import FILE, Example, as_text, read, written  # noqa: E402
from tests.server import fuzzing  # noqa: E402 - the fuzzer knows a good request of every operation
from tests.server.fuzzing.asking import exchange  # noqa: E402
from tests.server.fuzzing.putting_right import put_right  # noqa: E402
from tests.server.fuzzing.world import CALLED, World  # noqa: E402
from tests.server.test_webhooks import KEY, NEW, SETTINGS  # noqa: E402
from tools.sessions import MACHINE, STEPS, Clock, frozen  # noqa: E402

from interlock.api.jobs import SUBMIT_JOBS  # noqa: E402
from interlock.api.kinds import CREATE, EXPLAIN, GET, GET_HISTORY, LIST, SEND  # noqa: E402
from interlock.api.operation import BYTES, Operation  # noqa: E402
from interlock.api.simulations import START_SIMULATION  # noqa: E402
from interlock.api.table import OPERATIONS  # noqa: E402
from interlock.server.parts import Parts  # noqa: E402
from interlock.systems.kinds import lifecycles_with  # noqa: E402
from interlock.systems.runs.webhook_security import github_signature, standard_headers  # noqa: E402
from interlock.wire.access import Role  # noqa: E402
from interlock.wire.artifacts import LEASE, RUNNER  # noqa: E402
from interlock.worker.imports import import_named  # noqa: E402

PLACES = {place.__name__: place for place in fuzzing.PLACES[1:]}
HEADERS = ("x-interlock-", "x-github-", "x-hub-", "webhook-")
"""The beginnings of headers that a page shows."""
SHORTENED = ((3, 24, 400), (2, 16, 200), (1, 12, 120), (1, 6, 80), (1, 3, 60))
"""Ever smaller: so many items of a list, fields of an object, and characters of a text are shown."""
LONGEST = 40
ROUNDS = 3
"""In so many rounds a run is planned, and its jobs are made."""
FOLDER = re.compile(rf"{re.escape(tempfile.gettempdir())}/\w+")
DRAWN = re.compile(
    r"\b[bjrsw]_[0-9a-f]{12}\b|\b[0-9a-f]{16,64}\b"  # ids, and what lies in tokens
    r"|(?<=\bid: )\d+|(?<=\"cursor\": \")\d+"  # places in the journal
)
"""What depends on the order in which concurrent parts of a server have drawn ids, and written."""
NO_HEADERS: Mapping[str, str] = {}
ORDERS = ROOT / "examples" / "orders.py"

Asked = tuple[requests.PreparedRequest, int, str, bytes]


class Guests:
    """Requests that no example of the document makes, and what has to be done before them."""

    def __init__(self, one: World) -> None:
        self._one = one

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = NO_HEADERS) -> Asked:
        """Send a request with JSON or a file; return it with its answer."""
        how: dict[str, Any] = {"data": body} if isinstance(body, bytes) else {"json": body}
        request = requests.Request(method, CALLED + path, headers=headers, **how).prepare()
        status, given, content = self._one.run(exchange(self._one.app, request, ""))
        return request, status, given["content-type"][0], content

    def sign_in(self) -> Asked:
        """Sign in with a new token."""
        return self.ask("POST", "/api/sessions", {"token": self._one.token(Role.VIEWER)})

    def github(self) -> Asked:
        """Send a signed push."""
        push = {
            "ref": "refs/heads/main",
            "before": "0b" * 20,
            "after": "5f" * 20,
            "repository": {"full_name": "acme/shop"},
            "sender": {"login": "ada"},
        }
        headers = {
            "X-GitHub-Event": "push",
            "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
            "X-Hub-Signature-256": github_signature(NEW, json.dumps(push).encode()),
        }
        return self.ask("POST", "/api/webhooks/github", push, headers)

    def hook(self) -> Asked:
        """Send a signed message."""
        body = {"id": "5f" * 20}
        now = datetime.fromtimestamp(Clock().s, UTC)
        headers = standard_headers([KEY], "msg_17", now, json.dumps(body).encode())
        return self.ask("POST", "/api/webhooks/generic/deploy", body, headers)

    def bring(self, path: str, content: bytes) -> Asked:
        """Send a file under the lease of an attempt."""
        real = fuzzing.at_work(self._one)
        headers = {"Content-Type": BYTES, LEASE: real["token"], RUNNER: real["runner_id"]}
        return self.ask("PUT", path, content, headers)

    def create(self) -> Asked:
        """Create an order."""
        body = {"data": {"customer": "ada", "amount": 40}, "id": "order-17", "request_id": "cart-17"}
        return self.ask("POST", "/api/kinds/order", body)

    def after_creation(self, method: str, path: str, body: Any = None) -> Asked:
        """Send a request about an order that there is."""
        self.create()
        return self.ask(method, f"/api/kinds/order{path}", body)

    def submit(self, operation: Operation[Any, Any]) -> Asked:
        """Send the example as it is: the fuzzer would put a task in it that its server knows."""
        return self.ask(operation.method, operation.path, operation.example)


SPECIAL: dict[str, Callable[[Guests], Asked]] = {
    SUBMIT_JOBS.name: lambda guests: guests.submit(SUBMIT_JOBS),
    START_SIMULATION.name: lambda guests: guests.submit(START_SIMULATION),
    "uploadArtifact": lambda guests: guests.bring("/api/runner/artifacts/january.csv", b"day,sum"),
    "saveCache": lambda guests: guests.bring("/api/runner/caches?key=wheels-1", b"wheels"),
    "signIn": Guests.sign_in,
    "receiveGithubWebhook": Guests.github,
    "receiveWebhook": Guests.hook,
    CREATE.name: Guests.create,
    LIST.name: lambda guests: guests.after_creation("GET", "?state=placed"),
    GET.name: lambda guests: guests.after_creation("GET", "/order-17"),
    GET_HISTORY.name: lambda guests: guests.after_creation("GET", "/order-17/history"),
    EXPLAIN.name: lambda guests: guests.after_creation("GET", "/order-17/explain"),
    SEND.name: lambda guests: guests.after_creation(
        "POST", "/order-17/send/pay", {"data": {"amount": 40}, "expected": 1}
    ),
}
ABOUT_LOOPS = ("readyz", "showServer")
"""Answers about the background loops. All others come without them: when they run depends on the machine."""
KINDS = (CREATE, LIST, GET, GET_HISTORY, EXPLAIN, SEND)
LABELS = {operation.name: f"{operation.method} {operation.path}" for operation in (*OPERATIONS, *KINDS)}


@contextmanager
def server(*, loops: bool) -> Iterator[World]:
    """Open a server of its own, whose clock stands still."""
    still = nullcontext() if loops else mock.patch.object(Parts, "_make_loops", return_value=())
    with tempfile.TemporaryDirectory() as folder, frozen(Clock()), still:
        declared = lifecycles_with(declared=[import_named(str(ORDERS)).ORDERS])
        with fuzzing.world(Path(folder), orchestration=SETTINGS, lifecycles=declared) as one:
            yield one


def sent(operation: str, place: str = "") -> Example:
    """Send the request of an operation, to a place or to the first where it succeeds."""
    for name in [place] if place else ["special"] if operation in SPECIAL else PLACES:
        with server(loops=operation in ABOUT_LOOPS) as one:
            request, status, media, content = _ask(one, operation, name)
        if status < 400 or place:
            return _example(operation, name, request, status, media, content)
    raise LookupError(f"{operation} succeeds nowhere: {content!r}")


def _ask(one: World, operation: str, place: str) -> Asked:
    if operation in SPECIAL:
        return SPECIAL[operation](Guests(one))
    case = fuzzing.example(one.operation(LABELS[operation]))
    one.about = case.operation.path
    one.parts.runtime.runs.prompt = False  # what is done beside a request depends on the machine
    put = put_right(case, PLACES[place](one))
    for _ in range(ROUNDS):
        one.run(one.parts.runtime.runs.keep())
    answer = one.call(put)
    return answer.request, answer.status_code, answer.headers["content-type"][0], answer.content


def _example(
    operation: str, place: str, request: requests.PreparedRequest, status: int, media: str, content: bytes
) -> Example:
    media = media.partition(";")[0]
    sent_as = str(request.headers.get("content-type", ""))
    shown = HEADERS if sent_as.startswith("application/json") else (*HEADERS, "content-type")
    return Example(
        operation=operation,
        place=place,
        method=str(request.method),
        path=str(request.url).removeprefix(CALLED),
        status=status,
        media=media,
        headers={
            name: str(value) for name, value in request.headers.items() if name.lower().startswith(shown)
        },
        body=_content(request.body, sent_as),
        answer=shortened(_content(_plain(content.decode()), media)),
    )


def _plain(text: str) -> str:
    """Return an answer without the folder of the database, and steps of the clock that stands still."""
    return STEPS.sub("", FOLDER.sub("/srv", text)).replace("fuzzer", "ada")


def _content(content: Any, media: str) -> Any:
    if content is None:
        return None
    text = content.decode() if isinstance(content, bytes) else str(content)
    return json.loads(text) if media.endswith("json") else text


def shortened(answer: Any) -> Any:
    """Return an answer of not too many lines: of a list the beginning, and how many more there are."""
    for sizes in SHORTENED:
        short = _cut(answer, *sizes)
        if as_text(short).count("\n") < LONGEST:
            break
    return short


def _cut(value: Any, items: int, fields: int, characters: int) -> Any:
    sizes = items, fields, characters
    if isinstance(value, list):
        left = len(value) - items
        return [*(_cut(each, *sizes) for each in value[:items]), *([f"… {left} more"] if left > 0 else [])]
    if isinstance(value, dict):
        left = len(value) - fields
        shown = {name: _cut(each, *sizes) for name, each in list(value.items())[:fields]}
        return shown | ({"…": f"{left} more"} if left > 0 else {})
    if isinstance(value, str) and len(value) > characters:
        return f"{value[:characters]}…"
    return value


def loosened(example: Example) -> str:
    """Return an example without what differs from one time to the next."""
    if example.operation in ABOUT_LOOPS:
        example = msgspec.structs.replace(example, answer=sorted(example.answer))
    return DRAWN.sub("…", MACHINE.sub("", written([example])))


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the operations that are named, or all of them."""
    parser = argparse.ArgumentParser(description="Record requests of the HTTP API.")
    parser.add_argument("names", nargs="*", help="names of operations; default: all")
    chosen = parser.parse_args(arguments).names
    known = read()
    made = {}
    for operation in LABELS:
        before = known.get(operation)
        if before is not None and chosen and operation not in chosen:
            made[operation] = before
            continue
        now = sent(operation)
        made[operation] = before if before and loosened(before) == loosened(now) else now
    FILE.write_text(written(made.values()), encoding="utf-8")
    print(f"sessions: {len(made)} operations in {FILE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
