"""Signed webhooks reach who may be told, and nobody who may not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from ipaddress import ip_address

import pytest
from tests.systems.runs.reports.receiver import Receiver, Says
from tests.systems.runs.reports.reports import NOW, failed_run, now, report, run_view
from tests.waiting import PATIENCE_S

from interlock.systems.runs.reports.outbound_http import MAX_ANSWER, HttpAnswer, OutboundHttp
from interlock.systems.runs.reports.report import DeliveryFailed, RunStatus
from interlock.systems.runs.reports.webhook import WebhookReporter, refusal_of
from interlock.systems.runs.settings import WebhookReporting
from interlock.systems.runs.webhook_security import Secret, check_standard, is_public

KEY, OLD = Secret(b"k" * 32), Secret(b"o" * 32)
HERE = ("127.0.0.0/8",)


def reporter(url: str, *, allow: Sequence[str] = HERE, timeout_s: float = PATIENCE_S) -> WebhookReporter:
    settings = WebhookReporting(name="team", url=url, keys=(KEY, OLD), allow=tuple(allow))
    return WebhookReporter(settings, now, timeout_s=timeout_s)


async def test_a_webhook_is_signed_so_that_its_receiver_can_check_it(receiver: Receiver) -> None:
    receiver.otherwise = lambda _: Says(200)
    team = reporter(f"{receiver.url}/hooks?a=1")
    for _ in range(2):
        await team.deliver(report(RunStatus.FAILED, failed_run(50)), "")
    await team.close()
    first, again = receiver.heard
    for key in (KEY, OLD):
        assert check_standard([key], first.headers, first.body, datetime.now(UTC)) == "r_0123456789ab.failed"
    assert first.path == "/hooks?a=1"
    assert first.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert first.said["type"] == "run.failed"
    assert first.said["timestamp"] == "2026-01-31T12:00:00Z"
    assert (again.headers["webhook-id"], again.body) == (first.headers["webhook-id"], first.body)
    data = first.said["data"]
    assert (data["run_id"], data["outcome"], data["source"]["repository"]) == (
        "r_0123456789ab",
        "FAILED",
        "acme/shop",
    )
    assert len(data["failed_jobs"]) == 20
    assert len(first.body) < 20_000


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (Says(302, headers={"Location": "http://169.254.169.254/latest"}), "redirects are not followed"),
        (Says(400), "answered 400"),
        (Says(500), "answered 500"),
        (Says(cut=True), "RemoteProtocolError"),
        (Says(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\nshort"), "RemoteProtocolError"),
    ],
)
async def test_a_webhook_delivery_without_a_success_response_can_be_retried(
    receiver: Receiver, says: Says, why: str
) -> None:
    receiver.answers = [says]
    team = reporter(receiver.url)
    with pytest.raises(DeliveryFailed, match=why) as failure:
        await team.deliver(report(RunStatus.SUCCESS), "")
    await team.close()
    assert not failure.value.never
    assert len(receiver.heard) == 1


async def test_a_webhook_delivery_that_receives_410_gone_is_not_retried(receiver: Receiver) -> None:
    receiver.answers = [Says(410)]
    team = reporter(receiver.url)
    with pytest.raises(DeliveryFailed) as failure:
        await team.deliver(report(RunStatus.SUCCESS), "")
    await team.close()
    assert failure.value.never


async def test_an_endless_answer_is_read_up_to_a_bound(receiver: Receiver) -> None:
    receiver.answers = [Says(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + b"x" * 200_000)]
    outgoing = OutboundHttp(HERE)
    answer = await outgoing.request("POST", receiver.url, {}, b"{}")
    await outgoing.close()
    assert (answer.status, len(answer.body)) == (200, MAX_ANSWER)


@pytest.mark.parametrize("says", [Says(silent=True), Says(raw=b"HTTP/1.1 200 OK\r\nContent-Le")])
async def test_a_receiver_that_does_not_finish_is_left(receiver: Receiver, says: Says) -> None:
    receiver.answers = [says]
    team = reporter(receiver.url, timeout_s=0.05)
    with pytest.raises(DeliveryFailed):
        await team.deliver(report(RunStatus.SUCCESS), "")
    await team.close()


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "fec0::1",
        "feff:ffff::1",
        "64:ff9b:1::a00:1",
        "64:ff9b:1::5db8:d822",
        "192.88.99.1",
        "192.0.0.8",
        "198.19.255.255",
        "2002:a00:1::1",
        "2002:c058:6301::",
        "2001:0:a00:1::f5ff:fffe",
        "2001:0:5db8:d822::a247:27dd",
        "2001:2::1",
        "2001:10::1",
        "3fff::1",
        "5f00::1",
        "::5db8:d822",
        "100::1",
        "4000::1",
        "ff0e::1",
    ],
)
def test_a_private_loopback_or_reserved_address_is_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "93.184.216.34",
        "2606:2800:220:1::1",
        "64:ff9b::5db8:d822",
        "::ffff:93.184.216.34",
        "2001:4860:4860::8888",
        "2a00:1450::1",
        "192.88.98.1",
        "172.32.0.1",
        "100.128.0.1",
    ],
)
def test_a_globally_routable_address_is_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:{}", "http://localhost:{}", "http://[::ffff:127.0.0.1]:{}", "http://2130706433:{}"],
)
async def test_a_webhook_is_not_delivered_to_a_loopback_address(receiver: Receiver, url: str) -> None:
    team = reporter(url.format(receiver.port), allow=())
    with pytest.raises(DeliveryFailed, match="not public"):
        await team.deliver(report(RunStatus.SUCCESS), "")
    await team.close()
    assert receiver.heard == []


async def test_a_name_that_leads_elsewhere_the_second_time_leads_nowhere(receiver: Receiver) -> None:
    """DNS rebinding: what was looked at is what is connected to, and each request looks once."""
    lookups: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        lookups.append(host)
        return ["127.0.0.2"] if len(lookups) == 1 else ["127.0.0.1"]

    outgoing = OutboundHttp(["127.0.0.2/32"], timeout_s=PATIENCE_S, resolve=resolve)
    with pytest.raises(DeliveryFailed):  # nobody listens at .2, and .1 is not asked instead
        await outgoing.request("POST", f"http://rebound.example:{receiver.port}/", {}, b"{}")
    assert lookups == ["rebound.example"]
    with pytest.raises(DeliveryFailed, match="not public"):
        await outgoing.request("POST", f"http://rebound.example:{receiver.port}/", {}, b"{}")
    await outgoing.close()
    assert receiver.heard == []


async def test_a_webhook_request_to_a_pinned_address_sends_the_host_name_of_its_url(
    receiver: Receiver,
) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["10.0.0.1", "127.0.0.1"]

    outgoing = OutboundHttp(HERE, resolve=resolve)
    await outgoing.request("POST", f"http://hooks.example:{receiver.port}/x", {}, b"{}")
    await outgoing.close()
    assert receiver.heard[0].headers["host"] == f"hooks.example:{receiver.port}"


@pytest.mark.parametrize(
    "url", ["ftp://a/", "http://", "http://user:pass@127.0.0.1/", "file:///etc/passwd", "x"]
)
async def test_other_addresses_are_refused(url: str) -> None:
    outgoing = OutboundHttp(HERE)
    with pytest.raises(DeliveryFailed):
        await outgoing.request("POST", url, {}, b"{}")
    await outgoing.close()


def test_the_retry_after_header_of_a_receiver_sets_the_retry_delay_up_to_one_day() -> None:
    def after_s(text: str) -> float | None:
        return refusal_of(HttpAnswer(503, {"retry-after": text}, b""), NOW).after_s

    assert after_s("120") == 120.0
    assert after_s(format_datetime(NOW + timedelta(seconds=30), usegmt=True)) == 30.0
    assert after_s("9" * 30) == 86_400.0
    assert after_s("soon") is None
    assert after_s("") is None


def test_a_webhook_reports_only_the_statuses_in_its_settings_and_needs_a_signing_key() -> None:
    team = reporter("http://127.0.0.1")
    assert team.wants(run_view(), RunStatus.FAILED)
    assert not team.wants(run_view(), RunStatus.RUNNING)
    assert not WebhookReporter(WebhookReporting(name="x", url="http://a"), now).able
