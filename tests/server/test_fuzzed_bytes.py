"""Good requests with bytes changed in them, to every route: each is answered, and none with a fault of ours.

What tests/server/test_fuzz.py sends is JSON that fits the document, or nearly. Here bodies are cut, mixed
and filled with bytes that are no text, and so are queries, paths and headers. The chance is the same every
time. In `make test-all` there are more than 20,000 requests.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
import requests
from tests.effort import pick
from tests.server.fuzzing import world
from tests.server.fuzzing.asking import exchange
from tests.server.fuzzing.judging import judge
from tests.server.fuzzing.places import at_work
from tests.server.fuzzing.putting_right import meant
from tests.server.fuzzing.world import CALLED, World

from interlock.server.app import every_route
from interlock.server.routes import Route
from interlock.wire.artifacts import LEASE, RUNNER

ROUTES = every_route()
EACH = pick(6, 250)
"""How many requests each route is sent."""
PARTS = pick(3, 8)
"""In how many pieces the routes are tried, so that they are shared out among processes."""

HOSTILE = (
    b"\xff",
    b"\xed\xa0\x80",
    b"\x00",
    b"1e999",
    b"-" + b"9" * 5_000,
    b"NaN",
    b'"\\ud800"',
    b'"\\u0000"',
    b"[" * 300,
    b'{"a":' * 300,
    b"\xe2\x80\xae",
    b"'; DROP TABLE record; --",
    b"../../../../etc/passwd",
    b"%00",
    b"\r\nX-Injected: 1",
    b"{{7*7}}",
    b"null",
    b"true",
    b'"type":',
    b'"token":1,',
)
HEADERS: tuple[dict[str, str], ...] = (
    {"Content-Type": "text/plain"},
    {"Content-Type": "application/json; charset=utf-16"},
    {"Content-Encoding": "gzip"},
    {"Idempotency-Key": "x" * 65},
    {"Idempotency-Key": "ÿ"},
    {"Origin": "https://evil.example"},
    {"Last-Event-ID": "99999999999999999999"},
    {"Authorization": "Bearer il_" + "0" * 16 + "_" + "0" * 64},
    {"Authorization": "Bearer \xff"},
    {"Content-Length": "7"},
    {LEASE: "j_000000000000.1.1." + "0" * 32, RUNNER: "\xff"},
    {},
)


def changed(chance: Random, body: bytes) -> bytes:
    """Return a body with something done to it that nobody has meant."""
    place = chance.randrange(len(body) + 1)
    end = min(len(body), place + chance.randrange(1, 12))
    piece = chance.choice(HOSTILE)
    return chance.choice(
        (
            body[:place],
            body[place:],
            body[:place] + piece + body[place:],
            body[:place] + piece + body[end:],
            body[:place] + chance.randbytes(8) + body[end:],
            body + body,
            chance.randbytes(chance.randrange(64)),
            piece,
        )
    )


class Fuzzer:
    """Sends good requests that were changed, about things that are there."""

    def __init__(self, one: World, seed: int) -> None:
        self.world = one
        self.chance = Random(seed)
        self.statuses: Counter[int] = Counter()
        self.real = dict(at_work(one))

    def send(self, route: Route) -> None:
        """Send one request to a route, and judge the answer."""
        label, chance = f"{route.method} {route.path}", self.chance
        named = dict(meant(label, self.real))
        path = route.path.format_map(_Values(named, chance))
        good: Any = route.example if isinstance(route.example, dict) else {}
        real = {name: value for name, value in named.items() if name in good}
        body = msgspec.json.encode({**good, **real, **({"wait_s": 0} if "wait_s" in good else {})})
        if chance.random() < 0.8:
            body = changed(chance, body)
        headers = {"Content-Type": "application/json"} if route.method != "GET" else {}
        if route.headers:
            headers |= {LEASE: self.real["token"], RUNNER: self.real["runner_id"]}
        headers |= chance.choice(HEADERS)
        query = quote(changed(chance, b"limit=1&cursor=x&q=state:failed&after=0&kind=job"), safe="=&:%")
        request = requests.Request(
            route.method, f"{CALLED}{path}?{query if chance.random() < 0.5 else ''}", data=body
        ).prepare()
        request.headers.update(headers)  # as they are, also those that no client would send
        status, response_headers, response_body = self.world.run(exchange(self.world.app, request, ""))
        judge(label, status, response_headers, response_body, self.world.log)
        self.statuses[status] += 1


class _Values(dict[str, str]):
    """What parts of a path become: something real, or something that was changed."""

    def __init__(self, real: dict[str, str], chance: Random) -> None:
        super().__init__(real)
        self._chance = chance

    def __getitem__(self, name: str) -> str:
        value = self.get(name, "x").encode()
        return quote(changed(self._chance, value) if self._chance.random() < 0.3 else value, safe="")


@pytest.mark.parametrize("part", range(PARTS))
def test_requests_with_corrupted_bytes_get_a_response_and_never_an_internal_error(
    part: int, tmp_path: Path
) -> None:
    with world(tmp_path) as one:
        fuzzer = Fuzzer(one, seed=part)
        for route in ROUTES[part::PARTS]:
            for _ in range(EACH):
                fuzzer.send(route)
        assert fuzzer.statuses.total() == EACH * len(ROUTES[part::PARTS])
        assert min(fuzzer.statuses) < 300, "some requests were good ones"
        assert fuzzer.statuses.keys() & {400, 404, 422}, "and some were not"


@pytest.mark.long
def test_there_are_many_thousand_of_them() -> None:
    assert EACH * len(ROUTES) >= 20_000
