"""The filter grammar: what it means, that it reads back as it was written, and what wrong words are told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import BadFilter
from interlock.lifecycles.job import JOB
from interlock.text import read_duration, write_duration
from interlock.wire.filters import Filter, job_id_of, read_filter
from interlock.wire.jobs import JobView

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
ONE, OTHER = "j_0123456789ab", "j_0123456789ac"


def a_job(**facts: object) -> JobView:
    known: dict[str, object] = {"id": ONE, "state": "PENDING", "version": 1, "task": "shop.send"}
    known |= {"queue": "ci", "created_at": NOW, "updated_at": NOW}
    return JobView(**{**known, **facts})  # type: ignore[arg-type]


def keeps(text: str, **facts: object) -> bool:
    return read_filter(text).selection(NOW).keeps(a_job(**facts))


# What it means


def test_an_empty_filter_means_every_job() -> None:
    selection = read_filter("  ").selection(NOW)
    assert (selection.filter, selection.query.states, selection.exact) == (Filter(), (), True)
    assert selection.keeps(a_job())


def test_filter_terms_that_the_store_supports_become_part_of_the_store_query() -> None:
    selection = read_filter(
        f"state:failed queue:ci label:gpu label:big parent:{ONE} since:1h until:10m"
    ).selection(NOW)
    query = selection.query
    assert (query.kind, query.states, query.queue, query.parent) == ("job", ("FAILED",), "ci", ONE)
    assert query.labels == ("big", "gpu")
    assert (query.since, query.until) == (NOW - timedelta(hours=1), NOW - timedelta(minutes=10))
    assert selection.exact


@pytest.mark.parametrize(
    "text", ["task:shop.send", f"id:{ONE}", "queue:a,b", "label:a,b", f"parent:{ONE},{OTHER}"]
)
def test_filter_terms_that_the_store_does_not_support_make_the_selection_inexact(text: str) -> None:
    assert not read_filter(text).selection(NOW).exact


@pytest.mark.parametrize("name", ["canceled", "CANCELLED", "Cancelled", "cancelled"])
def test_states_are_known_in_any_case_and_either_spelling(name: str) -> None:
    assert read_filter(f"state:{name}").states == ("CANCELED",)


def test_several_values_mean_any_of_them() -> None:
    assert keeps("queue:night,ci")
    assert not keeps("queue:night,day")
    assert keeps("label:gpu,big", labels=("big",))
    assert not keeps("label:gpu label:big", labels=("big",))


def test_a_negated_state_means_all_the_others() -> None:
    wanted = read_filter("-state:failed -state:cancelled,completed")
    assert wanted.wanted_states == ("SUBMITTED", "PENDING", "RUNNING")
    assert wanted.selection(NOW).query.states == ("SUBMITTED", "PENDING", "RUNNING")


def test_ids_are_known_with_and_without_their_beginning() -> None:
    assert read_filter("id:0123456789AB").ids == (ONE,)
    assert [job_id_of(text) for text in ("018F", "j_018f", "j_", "x", "j_0123456789abc")] == [
        "j_018f", "j_018f", None, None, None,
    ]  # fmt: skip


def test_since_and_until_are_ages_or_times() -> None:
    assert read_filter("since:90m").since == timedelta(minutes=90)
    assert read_filter("since:2026-01-31").since == datetime(2026, 1, 31, tzinfo=UTC)
    assert read_filter("until:2026-01-31T12:00+02:00").until == datetime(2026, 1, 31, 10, tzinfo=UTC)
    assert keeps("since:1h", created_at=NOW - timedelta(hours=1))
    assert not keeps("since:1h", created_at=NOW - timedelta(hours=2))
    assert not keeps("until:1h", created_at=NOW - timedelta(hours=1))


def test_an_age_before_all_times_is_the_beginning_of_them() -> None:
    for text in ("since:9999w", "since:100000w", "since:0001-01-01"):
        since = read_filter(text).selection(NOW).query.since
        assert since is not None
        assert since.year == 1970


def test_a_filter_can_be_held_to_some_states() -> None:
    assert read_filter("state:failed,running").among(["RUNNING"]).wanted_states == ("RUNNING",)
    assert read_filter("state:failed").among(["RUNNING"]).selection(NOW).impossible


def test_names_with_spaces_and_commas_stand_in_quotation_marks() -> None:
    assert read_filter(r'queue:"night shift, \"late\""').queues == ('night shift, "late"',)


# Reading back what was written

_NAMES = st.text(min_size=1, max_size=12).filter(lambda name: name.isprintable() or "\n" in name)
_SOME = st.lists(_NAMES, max_size=3, unique=True).map(tuple)
_IDS = st.lists(st.integers(0, 16**12 - 1).map(lambda n: f"j_{n:012x}"), max_size=3, unique=True).map(tuple)
_MOMENTS = st.one_of(
    st.none(),
    st.integers(0, 10**12).map(lambda us: timedelta(microseconds=us)),
    st.datetimes(min_value=datetime(1000, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
_FILTERS = st.builds(
    Filter,
    states=st.lists(st.sampled_from([str(state) for state in JOB.states]), max_size=3, unique=True).map(
        tuple
    ),
    queues=_SOME,
    labels=st.lists(st.lists(_NAMES, min_size=1, max_size=2).map(tuple), max_size=2).map(tuple),
    parents=_IDS,
    tasks=_SOME,
    ids=_IDS,
    since=_MOMENTS,
    until=_MOMENTS,
)


@given(_FILTERS)
def test_every_filter_reads_back_as_the_same_filter(wanted: Filter) -> None:
    assert read_filter(str(wanted)) == wanted


@given(st.integers(0, 10**15))
def test_every_duration_reads_back_as_the_same_duration(microseconds: int) -> None:
    duration = timedelta(microseconds=microseconds)
    read = read_duration(write_duration(duration))
    assert abs(read - duration) <= timedelta(microseconds=1)


@given(st.text(max_size=40))
def test_any_text_is_a_filter_that_reads_back_or_is_refused_as_a_bad_filter(text: str) -> None:
    try:
        wanted = read_filter(text)
    except BadFilter:
        return
    assert read_filter(str(wanted)) == wanted


# Wrong words


@pytest.mark.parametrize(
    ("text", "place", "why", "todo"),
    [
        ("queue:ci sate:failed", 10, "there is no key 'sate', did you mean state", "state:, queue:"),
        ("state:faild", 1, "There is no state 'faild' of job. Did you mean FAILED", "FAILED"),
        ("queue:ci failed", 10, "it is not of the form key:value", "state:"),
        ("-queue:ci", 1, "only a state can be negated", "queue:ci"),
        ("state:", 1, "a value is missing after state:", "state:failed"),
        ("state:failed,", 1, "a value is missing", "state:failed"),
        ("queue:a queue:b", 9, "queue is there twice", "queue:a,b"),
        ("since:1h since:2h", 10, "since is there twice", "once"),
        ("since:1h,2h", 1, "since takes one time", "one"),
        ("since:soon", 1, "'soon' is neither a duration nor a date", "90s, 15m"),
        ("since:2026-13-01", 1, "2026-13-01", "2026-01-31"),
        ("id:j_01", 1, "'j_01' is not the id of a job", "interlock job list"),
        ('queue:"night', 1, "a quotation mark is not closed", "two words"),
    ],
)  # fmt: skip
def test_a_filter_error_names_the_wrong_word_its_position_and_a_correction(
    text: str, place: int, why: str, todo: str
) -> None:
    with pytest.raises(BadFilter) as caught:
        read_filter(text)
    error = caught.value
    assert why in error.sentence
    assert todo in error.todo
    assert error.facts["position"] == place
    assert str(error.facts["word"]) in text


def test_a_filter_that_leaves_no_state_is_refused() -> None:
    with pytest.raises(BadFilter, match="leaves no state"):
        read_filter("state:failed -state:failed")
