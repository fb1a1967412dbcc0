"""What can happen: named values, and frozen dataclasses that carry something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from enum import StrEnum

import pytest

from interlock.errors import MalformedTable
from interlock.machine import Event, Kind, command, consequence, event, message, signal, timer
from interlock.machine.events import payload_of, type_of


class Who(StrEnum):
    USER = "user"


@event(Kind.MESSAGE, by="runner")
class LeaseRenewed(Event):
    """The runner is still there,
    and wants to go on.

    This paragraph is for programmers only.
    """

    token: str
    for_s: float = 30.0


@pytest.mark.parametrize(
    ("declare", "kind"),
    [
        (command, Kind.COMMAND),
        (message, Kind.MESSAGE),
        (timer, Kind.TIMER),
        (signal, Kind.SIGNAL),
        (consequence, Kind.CONSEQUENCE),
    ],
)
def test_a_named_event_has_its_name_kind_sender_and_sentence(
    declare: Callable[..., Event], kind: Kind
) -> None:
    cancel = declare("cancel", "Not wanted.", by="user")
    assert (cancel.name, cancel.kind, cancel.by, cancel.doc) == ("cancel", kind, "user", "Not wanted.")
    assert repr(cancel) == f"<{kind} cancel>"


def test_only_a_command_is_sent_by_choice() -> None:
    assert [kind for kind in Kind if not kind.arrives] == [Kind.COMMAND]


def test_two_events_of_one_name_are_two_events() -> None:
    one, other = command("cancel", "Not wanted.", by="user"), command("cancel", "Not wanted.", by="user")
    assert type_of(one) is not type_of(other)


def test_the_sender_of_an_event_may_be_an_enum_member_and_is_stored_as_plain_text() -> None:
    assert type(command("cancel", "Not wanted.", by=Who.USER).by) is str


def test_an_event_is_referred_to_by_its_value_or_its_type() -> None:
    cancel = command("cancel", "Not wanted.", by="user")
    assert type_of(cancel) is type_of(type(cancel)) is type(cancel)
    assert type_of(LeaseRenewed) is type_of(LeaseRenewed(token="t")) is LeaseRenewed


def test_an_event_that_carries_something_is_named_after_its_class() -> None:
    assert (LeaseRenewed.name, LeaseRenewed.kind, LeaseRenewed.by) == (
        "lease_renewed",
        Kind.MESSAGE,
        "runner",
    )


def test_an_event_may_be_given_a_name_of_its_own() -> None:
    @event(Kind.COMMAND, by="user", name="stop!")
    class Halt(Event):
        """Stop."""

    assert Halt.name == "stop!"


def test_the_doc_of_an_event_is_the_first_paragraph_of_its_docstring() -> None:
    assert LeaseRenewed.doc == "The runner is still there, and wants to go on."


def test_an_event_without_a_docstring_has_no_sentence_rather_than_an_invented_one() -> None:
    @event(Kind.COMMAND, by="user")
    class Silent(Event):
        loud: bool = False

    assert Silent.doc == ""


def test_an_event_that_carries_something_is_a_value() -> None:
    assert LeaseRenewed(token="t") == LeaseRenewed(token="t", for_s=30.0)
    assert LeaseRenewed(token="t") != LeaseRenewed(token="u")
    assert hash(LeaseRenewed(token="t")) == hash(LeaseRenewed(token="t"))


def test_the_payload_of_an_event_cannot_be_changed() -> None:
    renewed = LeaseRenewed(token="t")
    with pytest.raises(FrozenInstanceError):
        renewed.token = "u"  # type: ignore[misc]


@pytest.mark.parametrize("field", ["name", "kind", "by", "doc"])
def test_an_event_with_a_payload_field_of_a_reserved_name_is_refused_with_an_error(field: str) -> None:
    clash = type(
        "Renamed", (Event,), {"__doc__": "It is renamed.", "__annotations__": {field: str, "new": str}}
    )
    with pytest.raises(MalformedTable) as caught:
        event(Kind.COMMAND, by="user")(clash)
    assert caught.value.facts == {"event": "Renamed", "reserved": [field]}


def test_the_payload_of_an_event_is_passed_by_keyword() -> None:
    with pytest.raises(TypeError):
        LeaseRenewed("t")  # type: ignore[call-arg]


def test_payload_of_returns_the_names_of_the_payload_fields_of_an_event() -> None:
    assert payload_of(LeaseRenewed) == ("token", "for_s")
    assert payload_of(type_of(command("cancel", "Not wanted.", by="user"))) == ()
