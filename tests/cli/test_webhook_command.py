"""`interlock webhook`: a secret for both sides, and a try whether the other side takes one."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from interlock.cli.main import main
from interlock.systems.runs.webhook_security import check_standard, signing_keys


@contextmanager
def listening(status: int) -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """Somebody who answers every request so, and what they have heard."""
    deliveries: list[tuple[dict[str, str], bytes]] = []

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            deliveries.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/ci", deliveries
        server.shutdown()
        thread.join()


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """A new secret, in the variable TEAM."""
    assert main(["webhook", "secret"]) == 0
    made = capsys.readouterr().out.strip()
    monkeypatch.setenv("TEAM", made)
    return made


def test_a_sample_arrives_signed(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    with listening(200) as (url, deliveries):
        code = main(["webhook", "test", url, "--secret-env", "TEAM", "--allow", "127.0.0.1", "--json"])
    assert code == 0
    assert json.loads(capsys.readouterr().out)["taken"] is True
    ((headers, body),) = deliveries
    keys = signing_keys("x", variable="K", environment={"K": key})
    assert check_standard(keys, headers, body, datetime.now(UTC)) == "r_000000000000.success"
    assert json.loads(body)["type"] == "run.success"


def test_a_receiver_that_refuses_ends_it_with_code_1(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    with listening(500) as (url, _):
        assert main(["webhook", "test", url, "--secret-env", "TEAM", "--allow", "127.0.0.1"]) == 1
    assert "answered 500" in capsys.readouterr().out


def test_webhook_test_sends_nothing_to_a_local_address_unless_allowed(
    key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening(200) as (url, deliveries):
        assert main(["webhook", "test", url, "--secret-env", "TEAM"]) == 1
    assert "not public" in capsys.readouterr().out
    assert deliveries == []


@pytest.mark.parametrize(
    "words",
    [
        ["--secret-env", "ABSENT"],
        [],
        ["--secret-env", "TEAM", "--word", "odd"],
        ["--secret-env", "TEAM", "--allow", "x"],
    ],
)
def test_wrong_questions_end_with_code_2(key: str, words: list[str]) -> None:
    assert main(["webhook", "test", "http://127.0.0.1:1/", *words]) == 2
