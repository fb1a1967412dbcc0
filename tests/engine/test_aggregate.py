"""A kind of record with one machine: the table decides, and the change says what the store has to write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec
import pytest

from interlock.engine.aggregate import Columns, RecordKind, rewritten
from interlock.errors import InterlockError, MalformedCouplings
from interlock.machine import STAY, Deadline, Machine, command, consequence, end, ignore, on, state, timer
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
