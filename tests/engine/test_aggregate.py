"""A kind of record with one machine: the table decides, and the change says what the store has to write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec
import pytest

from interlock.engine.aggregate import Columns, RecordKind, postponed, rewritten
from interlock.engine.step_templates import StepTemplates
from interlock.errors import InterlockError, MalformedCouplings, MalformedKind
from interlock.machine import (
    STAY,
    Deadline,
    Event,
    Machine,
    command,
    consequence,
    end,
    ignore,
    on,
    state,
    timer,
)
from interlock.machine.cascade import EventRules
from interlock.store.records import Change, Note, Record, StepLine, record_after

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=10)


class Door(StrEnum):
    SHUT = "shut"
    OPEN = "open"
    WALLED = "walled"


SHUT, OPEN, WALLED = Door

unlock = command("unlock", "Open it.", by="guest")
knock = command("knock", "Let it be known that somebody is there.", by="guest")
fall = timer("fall", "It falls shut.", by="spring")
wall = consequence("wall", "There is no door any more.", by="mason")

SPRING = Deadline(fall, "spring_s", 30.0)

# fmt: off
DOOR = Machine[Door, None](
    "door",
    "A door that falls shut.",
    initial=SHUT,
    stop=(wall,),
    states=(
        state(SHUT, "Nobody passes.", turn="guest"),
        state(OPEN, "People pass.", turn="spring", within=SPRING),
        end(WALLED, "It is no more."),
    ),
    rows=(
        on(unlock, SHUT, OPEN, owner="guest", why="Someone has a key."),
        on(knock, (SHUT, OPEN), STAY, owner="guest", why="Someone is there."),
        on(fall, OPEN, SHUT, owner="spring", why="It has a spring."),
        on(wall, (SHUT, OPEN), WALLED, owner="mason", why="The house is rebuilt."),
        ignore(fall, (SHUT, WALLED), why="it is shut"),
        ignore(wall, WALLED, why="it is walled"),
    ),
)
# fmt: on


class DoorBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the record of a door keeps."""

    by: str = ""


DOORS = RecordKind(DOOR, DoorBody, events=EventRules(quiet=(knock,), sent=(wall,)))


def written(change: Change, before: Record | None = None, at: datetime = NOW) -> Record:
    return record_after(change, before, at)


def opened(kind: RecordKind[DoorBody] = DOORS) -> Record:
    door = kind.new("d", DoorBody(by="anna"), NOW, Columns(queue="hall", labels=("oak",)))
    door.must(unlock)
    return written(door.change(actor="anna", reason="a key", commit_id="m1"))


def test_a_record_is_created_with_its_steps_its_columns_and_the_timer_of_its_table() -> None:
    door = DOORS.new("d", DoorBody(by="anna"), NOW, Columns(queue="hall", labels=("oak",)))
    door.must(unlock)
    assert door.change(actor="anna", reason="a key", commit_id="m1") == Change(
        kind="door",
        id="d",
        expected=0,
        state=OPEN,
        body=b'{"by":"anna"}',
        queue="hall",
        labels=("oak",),
        deadline_at=NOW + timedelta(seconds=SPRING.seconds),
        note=Note(
            steps=(StepLine("door", "", "unlock", SHUT, OPEN, "guest"),),
            actor="anna",
            reason="a key",
            request_id="m1",
        ),
    )


def test_a_record_keeps_its_columns_and_names_the_version_that_was_decided_on() -> None:
    record = opened()
    door = DOORS.of(record, LATER)
    door.must(fall)
    change = door.change(actor="spring")
    assert (change.state, change.queue, change.labels) == (SHUT, "hall", ("oak",))
    assert (change.expected, change.expected_at) == (1, record.updated_at)
    assert change.deadline_at is None, "no timer runs while it is shut"


def test_a_body_that_is_not_replaced_stays_the_same_to_the_byte() -> None:
    newer = msgspec.structs.replace(opened(), body=b'{ "by": "anna", "since_version": 9 }')
    door = DOORS.of(newer, LATER)
    door.must(fall)
    assert door.change().body == newer.body, "what a newer version has written is not lost"
    door.body = DoorBody(by="bob")
    assert door.change().body == b'{"by":"bob"}'


def test_a_refused_event_raises_an_error_with_the_sentence_of_the_refusal() -> None:
    door = DOORS.of(opened(), LATER)
    with pytest.raises(InterlockError, match="The door is already open"):
        door.must(unlock)


def test_an_event_that_is_no_news_leaves_no_note_but_a_creation_does() -> None:
    quiet = DOORS.of(opened(), LATER)
    quiet.must(knock)
    assert quiet.change().note is None
    new = DOORS.new("d", DoorBody(), NOW)
    new.must(knock)
    note = new.change().note
    assert note is not None
    assert [line.event for line in note.steps] == ["knock"]


def test_settings_change_how_long_a_timer_runs_and_only_timers_that_there_are() -> None:
    slow = DOORS.lasting(spring_s=300.0)
    assert opened(slow).deadline_at == NOW + timedelta(seconds=300)
    assert opened().deadline_at == NOW + timedelta(seconds=30), "the kind itself is as it was"
    with pytest.raises(KeyError, match="the door has no timer of sprung_s"):
        DOORS.lasting(sprung_s=1.0)


def test_an_upsert_creates_a_missing_record_or_replaces_the_body_of_an_existing_one() -> None:
    new, old = (DOORS.upsert(record, "d", DoorBody(by="bob"), LATER) for record in (None, opened()))
    assert (new.version, new.state, new.change().body) == (0, SHUT, b'{"by":"bob"}')
    assert (old.version, old.state, old.change().body) == (1, OPEN, b'{"by":"bob"}')


def test_a_record_that_is_due_is_sent_the_event_of_its_timer() -> None:
    door = DOORS.fired(opened(), LATER)
    assert door.state is SHUT
    assert [line.event for line in door.lines] == ["fall"]


def test_a_deadline_in_a_state_without_a_timer_is_cleared() -> None:
    odd = msgspec.structs.replace(opened(), state=SHUT, deadline_at=NOW)
    change = DOORS.fired(odd, LATER).change()
    assert (change.state, change.deadline_at, change.note) == (SHUT, None, None)


def test_a_kind_that_is_not_journalled_leaves_no_note_and_may_encode_its_bodies_itself() -> None:
    doors = RecordKind(DOOR, msgspec.Raw, events=EventRules(sent=(wall,)), journalled=False)
    door = doors.new("d", msgspec.Raw(b"[1, 2]"), NOW)
    door.must(unlock)
    change = door.change()
    assert (change.state, change.body, change.note) == (OPEN, b"[1, 2]", None)


def test_a_consequence_without_a_coupling_has_to_be_declared() -> None:
    with pytest.raises(MalformedCouplings, match="no coupling sends wall to a door"):
        RecordKind(DOOR, DoorBody)


def test_a_rewritten_record_keeps_every_column_that_is_not_changed() -> None:
    record = msgspec.structs.replace(opened(), parent="house", priority=3, ready_at=NOW)
    assert written(rewritten(record), record, record.updated_at) == msgspec.structs.replace(record, version=2)
    other = rewritten(record, queue="cellar", body=b"{}")
    assert (other.queue, other.body, other.labels, other.note) == ("cellar", b"{}", ("oak",), None)
    assert (other.expected, other.expected_at) == (record.version, record.updated_at)


def test_an_unchanged_record_is_postponed_with_a_note_that_says_why() -> None:
    record, note = opened(), Note(actor="clock", reason="it could not fall")
    later = record_after(postponed(record, LATER, note), record, LATER)
    assert (later.deadline_at, later.version) == (LATER, 2)
    assert (later.state, later.body, later.labels) == (record.state, record.body, record.labels)
    assert postponed(record, LATER, note).note == note


# Deadlines


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """What the record of a door keeps that is closed at a time."""

    closes_at: datetime | None = None


TIMED = RecordKind(DOOR, Shift, due={fall: lambda door: door.body.closes_at}, events=EventRules(sent=(wall,)))
EVENING = NOW + timedelta(hours=8)


def test_a_record_ends_when_its_data_say_so_as_long_as_it_is_in_a_state_with_that_timer() -> None:
    door = TIMED.new("d", Shift(closes_at=EVENING), NOW)
    assert door.change().deadline_at is None, "no timer runs while it is shut"
    door.must(unlock)
    assert door.change().deadline_at == EVENING, "and not after the duration of the table"
    record = written(door.change())
    moved = TIMED.of(record, LATER, Shift(closes_at=LATER))
    assert moved.change().deadline_at == LATER, "other data are enough"
    assert TIMED.of(record, LATER, Shift()).change().deadline_at is None
    assert TIMED.fired(record, EVENING).change().deadline_at is None, "it is shut"


def test_data_can_say_when_a_timer_ends_but_only_one_that_the_table_declares() -> None:
    for event in (knock, wall):
        with pytest.raises(
            MalformedKind, match=f"The table of door has no state with a timer of {event.name}"
        ):
            RecordKind(DOOR, Shift, due={event: lambda _: NOW}, events=EventRules(sent=(wall,)))


def test_a_timer_expires_earlier_if_asked_but_not_later_and_only_where_there_is_one() -> None:
    door = DOORS.of(opened(), NOW)
    door.expire_by(EVENING)
    assert door.deadline_at == NOW + timedelta(seconds=30)
    door.expire_by(LATER)
    assert door.deadline_at == LATER
    with pytest.raises(ValueError, match="A door that is shut has no timer"):
        DOORS.new("d", DoorBody(), NOW).expire_by(LATER)


def test_a_running_timer_is_extended_and_one_that_does_not_run_is_not() -> None:
    door, shut = DOORS.of(opened(), NOW), DOORS.new("d", DoorBody(), NOW)
    for each in (door, shut):
        each.extend_timer(timedelta(seconds=5))
    assert (door.deadline_at, shut.deadline_at) == (NOW + timedelta(seconds=35), None)


def test_only_records_in_states_in_which_they_are_claimed_have_a_time_from_which_they_are() -> None:
    doors = RecordKind(DOOR, DoorBody, claimed_in=(SHUT,), events=EventRules(sent=(wall,)))
    door = doors.new("d", DoorBody(), NOW, Columns(queue="hall", ready_at=NOW))
    assert door.change().ready_at == NOW
    record = written(door.change())
    assert doors.step(record, unlock, LATER).ready_at is None
    assert doors.step(record, unlock, LATER, ready_at=LATER).ready_at is None
    assert doors.step(record, knock, LATER).ready_at == NOW


# One event


def test_a_step_is_the_change_after_one_event_with_another_body_and_other_columns() -> None:
    record = opened()
    change = DOORS.step(record, knock, LATER, DoorBody(by="bob"), actor="bob", reason="a bell", queue="porch")
    door = DOORS.of(record, LATER, DoorBody(by="bob"))
    door.must(knock)
    door.place(queue="porch")
    assert change == door.change(actor="bob", reason="a bell")
    with pytest.raises(InterlockError, match="The door is already open"):
        DOORS.step(record, unlock, LATER)


STEPS = StepTemplates(DOORS)


@pytest.mark.parametrize("durations", [{}, {"spring_s": 5.0}], ids=["usual", "slow"])
@pytest.mark.parametrize("event", [None, unlock, knock, wall])
def test_a_new_record_like_others_is_one_that_its_table_makes(
    durations: dict[str, float], event: Event | None
) -> None:
    columns = Columns(queue="hall", ready_at=NOW)
    door = DOORS.lasting(**durations).new("d", DoorBody(by="anna"), NOW, columns)
    if event is not None:
        door.must(event)
    found = STEPS.lasting(**durations).new(
        "d", b'{"by":"anna"}', NOW, event=event, commit_id="m1", queue="hall", ready_at=NOW
    )
    assert found == door.change(commit_id="m1")


@pytest.mark.parametrize("actor", ["", "anna"])
@pytest.mark.parametrize("commit_id", ["", "m1"])
@pytest.mark.parametrize(("state", "event"), [(SHUT, unlock), (SHUT, knock), (OPEN, fall), (OPEN, knock)])
def test_a_step_like_others_is_what_the_table_decides_about_the_record_alone(
    state: Door, event: Event, commit_id: str, actor: str
) -> None:
    record = msgspec.structs.replace(opened(), state=state, deadline_at=EVENING if state is OPEN else None)
    alone = DOORS.step(record, event, LATER, commit_id=commit_id, actor=actor, reason="why")
    found = STEPS.step(record, event, LATER, commit_id=commit_id, actor=actor, reason="why")
    assert found == alone


def test_a_record_whose_data_decide_is_not_like_others() -> None:
    with pytest.raises(ValueError, match="What becomes of a door depends on its data"):
        StepTemplates(TIMED)
