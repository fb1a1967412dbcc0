"""No secret gets out, in whatever form and in whatever pieces it is written."""

from __future__ import annotations

import base64
import json
import re
import shlex
import textwrap
from itertools import pairwise
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.worker.board import Board, Job
from tests.worker.conftest import Start

from interlock.processes.masks import MASK, Mask, MaskedStream
from interlock.worker.context import Context
from interlock.worker.tasks import Registry

TOKEN = "s3cr3t/with+odd=chars & 'quotes'"
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7VJ\n-----END KEY-----\n"
SECRETS = {"TOKEN": TOKEN, "KEY": KEY}
ACCESS = f"il_{'6f2c9d41a07be358'}_{'8c1f' * 16}"
SESSION = f"is_{'0b7d1f52c9e6a384'}_{'51d0' * 16}"
LEASE = f"j_0123456789ab.1.12.{'5f1c' * 8}"

FORMS = {
    "as it is": TOKEN,
    "in base64": base64.b64encode(TOKEN.encode()).decode(),
    "in base64 without padding": base64.b64encode(TOKEN.encode()).decode().rstrip("="),
    "in base64 for URLs": base64.urlsafe_b64encode(TOKEN.encode()).decode(),
    "in a URL": quote(TOKEN, safe=""),
    "in a form": quote_plus(TOKEN),
    "in a URL with small letters": re.sub("%..", lambda found: found[0].lower(), quote(TOKEN, safe="")),
    "in JSON": json.dumps({"token": TOKEN}),
    "quoted for a shell": shlex.quote(TOKEN),
    "in hexadecimal": TOKEN.encode().hex(),
    "all lines": KEY,
    "one line": KEY.splitlines()[1],
    "all lines in JSON": json.dumps(KEY),
    "all lines in base64": base64.b64encode(KEY.encode()).decode(),
}


def words_of(secret: str) -> list[str]:
    return [secret[at : at + 8] for at in range(0, len(secret) - 8, 8)]


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_masked_in_every_form(form: str) -> None:
    shown = Mask(SECRETS).text(f"before {FORMS[form]} after")
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert MASK in shown
    for leak in (*words_of(TOKEN), *words_of(FORMS[form].strip('"{}: ').removeprefix('token": "'))):
        assert leak not in shown or "KEY" in leak


@pytest.mark.parametrize("before", range(6))
@pytest.mark.parametrize("width", [76, 64, 5])
def test_a_secret_inside_base64_text_is_masked_at_any_offset_and_line_width(before: int, width: int) -> None:
    text = base64.b64encode(b"x" * before + TOKEN.encode() + b"\nand so on, for a while").decode()
    wrapped = "\n".join(textwrap.wrap(text, width))
    shown = Mask(SECRETS).text(wrapped)
    assert MASK in shown
    first, last = -(-before * 8 // 6), (before + len(TOKEN)) * 8 // 6
    left = shown.replace("\n", "")
    assert not any(text[at : at + 4] in left for at in range(first, last - 3))


def test_text_without_a_maskable_secret_is_not_changed() -> None:
    mask = Mask(SECRETS)
    for text in ("", "plain", "s3cr3t", "-----", "\ud800", "BEGIN"):
        assert mask.text(text) == text
    assert Mask({"SHORT": "abc"}).text("abc il_ j_ il_0123") == "abc il_ j_ il_0123"


@pytest.mark.parametrize("credential", [ACCESS, SESSION, LEASE])
@pytest.mark.parametrize("secrets", [{}, SECRETS])
def test_credentials_are_masked_by_their_format_at_any_chunk_size_of_the_stream(
    credential: str, secrets: dict[str, str]
) -> None:
    text = f"il_0 {credential[:-1]} [{credential}] {credential}{credential} j_01".encode()
    expected = f"il_0 {credential[:-1]} [{MASK}] {MASK}{MASK} j_01".encode()
    assert Mask(secrets).all(text) == expected
    for size in (1, 2, 7, 50, len(text)):
        stream = MaskedStream(Mask(secrets))
        shown = b"".join(stream.feed(text[at : at + size]) for at in range(0, len(text), size))
        assert shown + stream.end() == expected, f"in pieces of {size}"


async def test_a_credential_that_a_step_prints_does_not_reach_the_log_of_its_job(
    board: Board, start: Start
) -> None:
    halves = f"printf {ACCESS[:40]}; printf '%s\\n' {ACCESS[40:]}; echo {LEASE} >&2; exit 3"
    job = board.pin("interlock.shell", {"steps": [{"name": "print", "run": halves}]})
    start()
    await board.until_state(job, "failed")
    assert sorted(line.text for line in job.log if line.level in ("stdout", "stderr")) == [MASK, MASK]
    assert ACCESS[-40:] not in f"{job.failure}"


pieces = st.lists(
    st.one_of(
        st.sampled_from([form.encode() for form in FORMS.values()]),
        st.sampled_from([form.encode()[:5] for form in FORMS.values()]),
        st.sampled_from([b"\n", b"\r\n", b"x", b" ", TOKEN.encode()[:-1], TOKEN.encode() * 2]),
        st.binary(max_size=6),
    ),
    max_size=8,
).map(b"".join)


@given(pieces, st.lists(st.integers(0, 400), max_size=12))
def test_a_stream_cut_at_any_position_is_masked_like_the_whole_text(text: bytes, cuts: list[int]) -> None:
    mask = Mask(SECRETS)
    stream = MaskedStream(mask)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    shown = b"".join(stream.feed(text[a:b]) for a, b in pairwise(places))
    shown += stream.end()
    assert shown == mask.all(text)
    assert TOKEN.encode() not in shown


@given(st.text(min_size=4, max_size=12), st.text(max_size=20), st.text(max_size=20))
def test_any_secret_is_masked_byte_by_byte(secret: str, before: str, after: str) -> None:
    text = f"{before}{secret}{after}".encode()
    stream = MaskedStream(Mask({"ANY": secret}))
    shown = b"".join(stream.feed(bytes([byte])) for byte in text) + stream.end()
    assert shown == Mask({"ANY": secret}).all(text)
    if secret.encode() not in MASK.encode() * 20:
        assert secret.encode() not in shown or secret.encode() in f"{before}{MASK}{after}".encode()


@given(secret=st.text(max_size=9), at=st.integers(0, 60), length=st.integers(0, 60))
def test_no_text_below_the_shortest_form_contains_a_secret(secret: str, at: int, length: int) -> None:
    """Every part of every form and of a lease: what is not searched would not have been masked."""
    mask = Mask({"ANY": secret})
    assert mask.shortest == min([len(LEASE) - 1, *(len(form.text) for form in mask.forms)])
    for text in (LEASE.encode(), *(form.text for form in mask.forms)):
        part = text[at : at + length][: mask.shortest - 1]
        assert mask.all(part) == mask._regex.sub(MASK.encode(), part) == part
        assert mask.all(text) != text


def test_a_mask_that_holds_nothing_back_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mask, "_hold", lambda _, piece, __: len(piece))
    stream = MaskedStream(Mask(SECRETS))
    shown = b"".join(stream.feed(bytes([byte])) for byte in TOKEN.encode()) + stream.end()
    assert shown == TOKEN.encode()


def test_nothing_is_held_back_that_cannot_become_a_secret() -> None:
    stream = MaskedStream(Mask({"TOKEN": "QQZZQQZZ"}))
    assert stream.feed(b"hello, world\n") == b"hello, world\n"
    assert stream.feed(b"now QQZ") == b"now "
    assert stream.feed(b"Y\n") == b"QQZY\n"


# In a worker


@pytest.fixture
def registry() -> Registry:
    """A test may add its own."""
    return Registry()


async def ended(board: Board, job: Job) -> Job:
    await board.until_state(job, "succeeded", "failed", "canceled")
    return job


def everything(board: Board) -> str:
    return "\n".join(map(str, map(msgspec.json.encode, board.messages)))


async def test_a_step_has_its_secrets_as_variables_and_its_log_has_none(board: Board, start: Start) -> None:
    script = 'printf "%s" "$TOKEN" | wc -c; for part in "$TOKEN" "$KEY"; do echo "got $part"; done; exit 3'
    job = board.pin("interlock.shell", {"run": script}, secrets=SECRETS)
    start()
    await ended(board, job)
    assert job.lines[:-1] == [str(len(TOKEN)), f"got {MASK}", f"got {MASK}"]
    assert job.failure.details.splitlines()[-1] == f"got {MASK}"
    assert not any(word in everything(board) for word in words_of(TOKEN))


async def test_a_handler_receives_its_secrets_and_all_of_its_output_is_masked(
    board: Board, start: Start, registry: Registry
) -> None:
    seen: list[Any] = []

    @registry.task(name="use")
    async def use(ctx: Context) -> dict[str, str]:
        seen.extend([ctx.secrets["TOKEN"], repr(ctx.secrets), dict(ctx.secrets)])
        ctx.log(f"with {ctx.secrets['TOKEN']}")
        ctx.progress(1, 2, ctx.secrets["TOKEN"])
        ctx.checkpoint({"token": TOKEN})
        return {"echo": TOKEN}

    @registry.task(name="fail")
    def fail(ctx: Context) -> None:
        raise ValueError(f"cannot log in with {ctx.secrets['TOKEN']}")

    jobs = [board.pin("use", secrets=SECRETS), board.pin("fail", secrets=SECRETS)]
    start()
    for job in jobs:
        await ended(board, job)
    assert seen == [TOKEN, "<Secrets TOKEN, KEY>", SECRETS]
    assert jobs[0].result == {"echo": MASK}
    assert jobs[1].failure.error == f"ValueError: cannot log in with {MASK}"
    assert not any(word in everything(board) for word in words_of(TOKEN))


async def test_a_missing_or_withheld_secret_is_named_in_the_failure_or_in_the_log(
    board: Board, start: Start, registry: Registry
) -> None:
    @registry.task(name="want")
    async def want(ctx: Context) -> str:
        return ctx.secrets["TOKEN"]

    plain, forked = board.pin("want"), board.pin("want", secrets_withheld=True)
    shell = board.pin("interlock.shell", {"run": "echo ${TOKEN-none}"}, secrets_withheld=True)
    start()
    for job in (plain, forked, shell):
        await ended(board, job)
    assert "was not given a secret TOKEN" in plain.failure.error
    assert "withheld" in forked.failure.error
    assert shell.lines[1:] == ["none"]
    assert "Secrets are withheld" in shell.lines[0]
