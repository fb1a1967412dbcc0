"""A delivery is taken only from whoever has the secret; the examples are those of the documentations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import InvalidSettings, NotSigned
from interlock.systems.runs.webhook_security import (
    Secret,
    check_github,
    check_standard,
    github_signature,
    new_signing_key,
    secret_texts,
    signing_keys,
    standard_headers,
    standard_signature,
)

GITHUB = Secret(b"It's a Secret to Everybody")
HELLO = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
KEY, OLD, OTHER = Secret(b"k" * 32), Secret(b"o" * 32), Secret(b"x" * 32)
NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def test_the_example_of_githubs_documentation_is_taken() -> None:
    assert github_signature(GITHUB, b"Hello, World!") == HELLO
    check_github([GITHUB], {"x-hub-signature-256": HELLO}, b"Hello, World!")


def test_the_example_of_standard_webhooks_is_signed_alike() -> None:
    (key,) = signing_keys("x", variable="K", environment={"K": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})
    signature = standard_signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("sent", ["", "sha256=", HELLO.upper(), HELLO[:-1], "sha1=ab", "sha256=é", "\udcff"])
def test_another_signature_of_github_is_refused(sent: str) -> None:
    with pytest.raises(NotSigned):
        check_github([GITHUB], {"x-hub-signature-256": sent}, b"Hello, World!")


def test_one_changed_byte_and_an_empty_list_of_secrets_are_refused() -> None:
    for secrets, body in (([GITHUB], b"Hello, World?"), ([], b"Hello, World!")):
        with pytest.raises(NotSigned):
            check_github(secrets, {"x-hub-signature-256": HELLO}, body)


def test_while_a_secret_is_replaced_both_are_taken_on_either_side() -> None:
    check_github([OTHER, GITHUB], {"x-hub-signature-256": HELLO}, b"Hello, World!")
    twice = standard_headers([KEY, OLD], "msg_1", NOW, b"{}")
    assert len(twice["webhook-signature"].split()) == 2
    for keys in ([KEY], [OLD], [OTHER, OLD]):
        assert check_standard(keys, twice, b"{}", NOW) == "msg_1"
    with pytest.raises(NotSigned):
        check_standard([OTHER], twice, b"{}", NOW)


@given(st.binary(max_size=200), st.integers(-300, 300))
def test_a_signed_webhook_is_accepted_within_five_minutes_of_its_timestamp(body: bytes, seconds: int) -> None:
    sent = standard_headers([KEY], "msg_1", NOW, body)
    assert check_standard([KEY], sent, body, NOW + timedelta(seconds=seconds)) == "msg_1"


@pytest.mark.parametrize("seconds", [-301, 301])
def test_an_old_delivery_and_one_from_the_future_are_refused(seconds: int) -> None:
    sent = standard_headers([KEY], "msg_1", NOW, b"{}")
    with pytest.raises(NotSigned, match="before or after now"):
        check_standard([KEY], sent, b"{}", NOW + timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("webhook-id", ""),
        ("webhook-id", "msg_2"),
        ("webhook-id", "é"),
        ("webhook-timestamp", "soon"),
        ("webhook-timestamp", "\u0661"),
        ("webhook-timestamp", "9" * 30),
        ("webhook-timestamp", str(int(NOW.timestamp()) + 1)),
        ("webhook-signature", ""),
        ("webhook-signature", "v1,"),
        ("webhook-signature", "v1a,AAAA v2,BBBB"),
    ],
)
def test_every_header_of_a_standard_webhook_counts(name: str, value: str) -> None:
    sent = {**standard_headers([KEY], "msg_1", NOW, b"{}"), name: value}
    with pytest.raises(NotSigned):
        check_standard([KEY], sent, b"{}", NOW)


def test_secrets_come_from_a_variable_and_from_a_file_and_are_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "secrets"
    file.write_text("first-of-the-file-long\n\n  second-of-the-file-long \n", encoding="utf-8")
    found = secret_texts(
        "GitHub", variable="S", file=str(file), environment={"S": "of-the-environment-1 two-two-two-two-two"}
    )
    assert [secret.reveal() for secret in found] == [
        b"of-the-environment-1",
        b"two-two-two-two-two",
        b"first-of-the-file-long",
        b"second-of-the-file-long",
    ]
    assert "environment" not in repr(found)
    assert secret_texts("GitHub", variable="ABSENT", environment={}) == ()


@pytest.mark.parametrize("text", ["whsec_!!", "whsec_" + "QUJD", "whsec_" + "QUJD" * 40])
def test_an_invalid_signing_key_is_refused_by_its_variable_name_without_showing_the_value(text: str) -> None:
    with pytest.raises(InvalidSettings) as refusal:
        signing_keys("the hook deploy", variable="K", environment={"K": text})
    assert text not in str(refusal.value.as_dict())
    assert "K" in refusal.value.sentence


def test_short_secrets_are_reported_and_a_file_that_is_not_there_holds_none(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="fewer than 16"):
        secret_texts("GitHub", variable="S", environment={"S": "short"})
    assert secret_texts("GitHub", file=str(tmp_path / "absent")) == ()
    (tmp_path / "odd").write_bytes(b"\xff")
    with pytest.raises(InvalidSettings, match="no text"):
        secret_texts("GitHub", file=str(tmp_path / "odd"))


def test_a_new_key_can_be_used_as_one() -> None:
    (key,) = signing_keys("x", variable="K", environment={"K": new_signing_key(b"\1" * 32)})
    assert key == Secret(b"\1" * 32)
