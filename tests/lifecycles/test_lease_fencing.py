"""Fencing: whatever is said under a lease counts only from its runner, in time, and while it lives.

S2-31 to S2-33 and resolutions 24, 30 and 31, at the level of one decision.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from interlock.lifecycles import LEASE
from interlock.lifecycles.lease import (
    ACTIVE,
    CANCELED,
    COMPLETED,
    DEAD,
    EXPIRED,
    GRANTED,
    LIVE,
    REVOKED,
    Ack,
    CancelAck,
    Complete,
    Expire,
    Heartbeat,
    Lease,
    LeaseState,
    Release,
    holder_lost,
    request_cancel,
    revoke,
)
from interlock.machine import Moved, Refusal, Refused

AT = datetime(2026, 1, 1, tzinfo=UTC)
TTL = 120.0
GRANT = Lease(runner_id="r_mine", expires_at=AT + timedelta(seconds=30))
HELD = Lease(runner_id="r_mine", expires_at=AT + timedelta(seconds=TTL))
ASKED = msgspec.structs.replace(HELD, cancel_requested=True)
Follow = Callable[..., Moved[Any, Any]]
Refuse = Callable[..., Refused[Any]]


def after(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


def messages(runner_id: str = "r_mine", seconds: float = 1) -> dict[str, Any]:
    """One of each thing that a runner can say."""
    who: dict[str, Any] = {"runner_id": runner_id, "at": after(seconds)}
    return {
        "ack": Ack(**who, ttl_s=TTL),
        "heartbeat": Heartbeat(**who, ttl_s=TTL),
        "complete": Complete(**who),
        "cancel_ack": CancelAck(**who),
        "release": Release(**who),
    }


UNDER_ACTIVE = ["heartbeat", "complete", "cancel_ack", "release"]


@pytest.mark.parametrize("message", UNDER_ACTIVE)
def test_another_runner_is_refused(message: str, refusal: Refuse) -> None:
    """R31: refused, and nothing is extended."""
    refused = refusal(LEASE, ACTIVE, ASKED, messages("r_other")[message])
    assert (refused.kind, refused.guards) == (Refusal.GUARD, ("from_its_runner",))


@pytest.mark.parametrize("message", ["ack", "release"])
def test_another_runner_cannot_take_or_give_back_a_granted_lease(message: str, refusal: Refuse) -> None:
    assert refusal(LEASE, GRANTED, GRANT, messages("r_other")[message]).guards == ("from_its_runner",)


@pytest.mark.parametrize("message", UNDER_ACTIVE)
@pytest.mark.parametrize("seconds", [TTL, TTL + 1, TTL + 3600])
def test_expired_but_not_yet_swept_is_expired(message: str, seconds: float, refusal: Refuse) -> None:
    """R30: from the very moment at which it runs out."""
    refused = refusal(LEASE, ACTIVE, ASKED, messages(seconds=seconds)[message])
    assert (refused.kind, refused.guards) == (Refusal.GUARD, ("in_time",))


@pytest.mark.parametrize("message", UNDER_ACTIVE)
def test_a_message_from_the_runner_is_accepted_until_the_lease_expires(message: str, follow: Follow) -> None:
    follow(LEASE, ACTIVE, ASKED, messages(seconds=TTL - 0.001)[message])


@pytest.mark.parametrize("seconds", [30, 31])
def test_an_acknowledgement_after_the_window_is_refused_before_the_sweep(
    seconds: float, refusal: Refuse
) -> None:
    """R30"""
    assert refusal(LEASE, GRANTED, GRANT, messages(seconds=seconds)["ack"]).guards == ("in_time",)


@pytest.mark.parametrize("state", DEAD)
@pytest.mark.parametrize("message", ["ack", *UNDER_ACTIVE])
@pytest.mark.parametrize("runner_id", ["r_mine", "r_other"])
def test_a_message_under_an_ended_lease_is_refused_as_stale(
    state: LeaseState, message: str, runner_id: str, refusal: Refuse
) -> None:
    """S2-31, R24: also a late Ack of a revoked lease."""
    refused = refusal(LEASE, state, ASKED, messages(runner_id)[message])
    assert refused.kind in (Refusal.TERMINAL, Refusal.ALREADY_THERE)
    assert "stale" in refused.why


@pytest.mark.parametrize("state", DEAD)
def test_a_dead_lease_is_not_moved_by_the_orchestrator_either(state: LeaseState, refusal: Refuse) -> None:
    for late in (revoke, holder_lost, request_cancel, Expire(at=after(9999))):
        assert refusal(LEASE, state, HELD, late).kind is Refusal.IGNORED


@pytest.mark.parametrize("message", ["heartbeat", "complete", "cancel_ack"])
def test_an_unacknowledged_lease_refuses_heartbeats_completions_and_cancel_acknowledgements(
    message: str, refusal: Refuse
) -> None:
    """S2-31: Complete and CancelAck only under an ACTIVE lease; a heartbeat extends no window."""
    canceling = msgspec.structs.replace(GRANT, cancel_requested=True)
    refused = refusal(LEASE, GRANTED, canceling, messages()[message])
    assert refused.kind is Refusal.NOT_ALLOWED
    assert "acknowledge it first" in refused.why


def test_a_repeated_acknowledgement_is_ignored_and_does_not_extend_the_lease(
    follow: Follow, refusal: Refuse
) -> None:
    first = follow(LEASE, GRANTED, GRANT, messages(seconds=1)["ack"])
    assert first.data.expires_at == after(1 + TTL)
    assert refusal(LEASE, ACTIVE, first.data, messages(seconds=50)["ack"]).kind is Refusal.IGNORED


def test_a_repeated_completion_is_refused_as_already_there(follow: Follow, refusal: Refuse) -> None:
    """S2-31; R28 replays the answer where answers are kept, the lease itself changes nothing."""
    done = follow(LEASE, ACTIVE, HELD, messages()["complete"])
    assert done.state is COMPLETED
    assert refusal(LEASE, COMPLETED, done.data, messages()["complete"]).kind is Refusal.ALREADY_THERE


def test_a_cancel_is_acknowledged_only_after_it_was_requested(follow: Follow, refusal: Refuse) -> None:
    """S2-30, S2-32: first the request, then the word that it has stopped."""
    refused = refusal(LEASE, ACTIVE, HELD, messages()["cancel_ack"])
    assert refused.guards == ("cancel_was_requested",)
    canceling = follow(LEASE, ACTIVE, HELD, request_cancel)
    assert (canceling.state, canceling.data.cancel_requested) == (ACTIVE, True)
    assert follow(LEASE, ACTIVE, canceling.data, messages()["cancel_ack"]).state is CANCELED


def test_a_request_to_cancel_moves_no_deadline(follow: Follow) -> None:
    canceling = follow(LEASE, ACTIVE, HELD, request_cancel)
    assert canceling.data.expires_at == HELD.expires_at
    assert canceling.steps[0].arms == ()


def test_a_completion_is_still_taken_while_a_cancel_is_requested(follow: Follow) -> None:
    """R25: the attempt decides what it is worth."""
    assert follow(LEASE, ACTIVE, ASKED, messages()["complete"]).state is COMPLETED


def test_an_unacknowledged_lease_is_revoked_and_refuses_a_cancel_request(
    follow: Follow, refusal: Refuse
) -> None:
    """R24"""
    assert refusal(LEASE, GRANTED, GRANT, request_cancel).kind is Refusal.NOT_ALLOWED
    revoked = follow(LEASE, GRANTED, GRANT, revoke)
    assert revoked.state is REVOKED
    assert "stale" in refusal(LEASE, REVOKED, revoked.data, messages()["ack"]).why


def test_after_a_forced_cancel_no_late_completion_is_taken(follow: Follow, refusal: Refuse) -> None:
    """S2-33"""
    revoked = follow(LEASE, ACTIVE, ASKED, revoke)
    assert "stale" in refusal(LEASE, REVOKED, revoked.data, messages()["complete"]).why


def test_a_heartbeat_that_was_overtaken_shortens_nothing(follow: Follow) -> None:
    """Two commits may come in the other order than their moments."""
    newer = follow(LEASE, ACTIVE, HELD, messages(seconds=100)["heartbeat"]).data
    assert follow(LEASE, ACTIVE, newer, messages(seconds=90)["heartbeat"]).data == newer


def test_a_timer_from_before_a_renewal_is_harmless(follow: Follow, refusal: Refuse) -> None:
    """R30"""
    renewed = follow(LEASE, ACTIVE, HELD, messages(seconds=100)["heartbeat"])
    assert refusal(LEASE, ACTIVE, renewed.data, Expire(at=after(TTL))).guards == ("run_out",)
    assert follow(LEASE, ACTIVE, renewed.data, Expire(at=after(100 + TTL))).state is EXPIRED


@pytest.mark.parametrize("state", LIVE)
def test_a_lease_ends_at_the_moment_it_runs_out_and_not_before(
    state: LeaseState, follow: Follow, refusal: Refuse
) -> None:
    refusal(LEASE, state, HELD, Expire(at=after(TTL - 0.001)))
    assert follow(LEASE, state, HELD, Expire(at=after(TTL))).state is EXPIRED


@pytest.mark.parametrize("state", LIVE)
def test_a_lease_whose_runner_is_lost_expires_at_once(
    state: LeaseState, follow: Follow, refusal: Refuse
) -> None:
    """R20: and if the dead one speaks after all, it is stale."""
    lost = follow(LEASE, state, HELD, holder_lost)
    assert lost.state is EXPIRED
    assert "stale" in refusal(LEASE, EXPIRED, lost.data, messages()["complete"]).why


def test_a_heartbeat_extends_the_lease_from_the_time_of_the_heartbeat(follow: Follow) -> None:
    renewed = follow(LEASE, ACTIVE, HELD, messages(seconds=7)["heartbeat"])
    assert renewed.data == msgspec.structs.replace(HELD, expires_at=after(7 + TTL))
    assert [deadline.setting for deadline in renewed.steps[0].arms] == ["lease_ttl_s"]


def test_each_live_state_has_its_own_limit() -> None:
    """R34"""
    limits = {entry.name: entry.within for entry in LEASE.table.states if entry.within}
    assert {name: (limit.setting, limit.seconds) for name, limit in limits.items()} == {
        GRANTED: ("ack_window_s", 30),
        ACTIVE: ("lease_ttl_s", 120),
    }


@pytest.mark.parametrize("state", LIVE)
def test_a_lease_that_its_runner_releases_is_revoked(state: LeaseState, follow: Follow) -> None:
    """R13"""
    assert follow(LEASE, state, GRANT, messages()["release"]).state is REVOKED
