"""The whole API under a fuzzer: no request that it makes is answered with an error of ours.

Nor with anything that the OpenAPI document does not say, with a credential, or with a refusal that is no
problem+json; and the log has no traceback and no credential. The pieces are independent of one another and
do the same every time. In `make test-all` they send more than 20,000 requests: each to every place. In
`make test` some of the requests of some of the routes are sent, each to one place in turn: one route in
`EVERY_AT_BOUNDS` is tried at its bounds, one in `EVERY_BY_CHANCE` by chance, and another one with tokens.
What every route has to refuse is held by test_bad_bytes.py, test_matrix.py and test_confined_tokens.py.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from schemathesis.core.failures import FailureGroup
from starlette.responses import Response
from tests.effort import ALL, pick
from tests.server import fuzzing
from tests.server.fuzzing import PLACES, world
from tests.server.fuzzing.cases import Case
from tests.server.fuzzing.judging import WrongAnswer

from interlock.api.jobs import Submitted
from interlock.api.operation import Link
from interlock.api.server import Alive
from interlock.server.app import every_route
from interlock.server.routes import Call, Route
from interlock.wire.access import Role

LABELS = [f"{route.method} {route.path}" for route in every_route()]
LINKED = {link.operation for route in every_route() for link in route.links}
FOLLOWED = [f"{route.method} {route.path}" for route in every_route() if route.name in LINKED]
SIGNED = [f"{route.method} {route.path}" for route in every_route() if route.for_strangers]
AT_LEAST = 20_000
EVERY_AT_BOUNDS, EVERY_BY_CHANCE = pick((27, 18), (1, 1))
BOUNDS = pick(10, 10**6)
"""So many requests at and beyond the bounds of a route are sent, from among all of them."""
DRAWN, DRAWN_WITH_TOKENS = pick((4, 1), (16, 4))
MORE_AND_MORE = pick((DRAWN,), (DRAWN, 4 * DRAWN, 16 * DRAWN))
"""Chance likes the constants of whatever modules are loaded, so that with few tries nothing may fit."""
SCENARIOS, STEPS = pick(2, 25), 10
UNTIL_FOUND = pick(10, 25)


@pytest.mark.parametrize("label", LABELS[::EVERY_AT_BOUNDS])
def test_every_bound_that_the_document_names_can_be_touched_and_crossed(label: str, tmp_path: Path) -> None:
    with world(tmp_path) as one:
        cases = spread(list(fuzzing.systematic(one.operation(label))))
        assert one.try_everywhere(cases, PLACES) == one.sent >= len(cases) > 0


def spread(cases: Sequence[Case]) -> Sequence[Case]:
    """Return at most `BOUNDS` of them, evenly spread."""
    return cases[:: -(-len(cases) // BOUNDS)]


@pytest.mark.parametrize("label", LABELS[pick(2, 0) :: EVERY_BY_CHANCE])
def test_random_requests_get_responses_that_conform_to_the_openapi_document(
    label: str, tmp_path: Path
) -> None:
    with world(tmp_path) as one:
        sent = 0
        for number in MORE_AND_MORE:
            cases = fuzzing.drawn(one.operation(label), number)
            sent += one.try_everywhere(cases, PLACES, fresh_every=1)
            if label in SIGNED or min(one.statuses) < 400:
                break
        assert one.sent == sent > 0
        if label in SIGNED:  # nobody guesses a signature or a token
            assert not [status for status in one.statuses if status < 400]
        elif ALL:
            assert 200 <= min(one.statuses) < 400, "nothing was ever done, so little was tried"


@pytest.mark.parametrize(
    "route", every_route()[pick(1, 0) :: EVERY_BY_CHANCE], ids=lambda route: f"{route.method} {route.path}"
)
def test_answers_follow_the_document_with_a_token_and_without(route: Route, tmp_path: Path) -> None:
    """Nobody, everybody with a role, and somebody who sees one queue only; none of them breaks anything."""
    with world(tmp_path, tokens=True) as one:
        cases = fuzzing.drawn(one.operation(f"{route.method} {route.path}"), DRAWN_WITH_TOKENS)
        one.bearer = ""
        one.judge_all(cases)
        let_in = {status for status in one.statuses if status != 401}
        assert not let_in or route.role is None
        for role in Role:
            one.bearer = one.token(role)
            one.try_out(cases, fuzzing.waiting, fresh_every=len(cases))
        one.bearer = one.token(route.role or Role.VIEWER, ("mail",))
        one.try_out(cases, fuzzing.at_work, fresh_every=len(cases))


@pytest.mark.parametrize("first", [(), (fuzzing.waiting,), PLACES], ids=len)
def test_responses_to_requests_that_follow_links_conform_to_the_openapi_document(
    first: Sequence[fuzzing.Place], tmp_path: Path
) -> None:
    answered = fuzzing.walk(tmp_path, first=first, scenarios=SCENARIOS, steps=STEPS)
    assert answered.total() > SCENARIOS * 2
    assert any(answered[label, 200] for label in FOLLOWED), "nobody followed a link"


def test_the_fuzzer_covers_every_operation_of_the_openapi_document() -> None:
    assert sorted(fuzzing.operations(fuzzing.schema_of())) == sorted(LABELS)


def test_the_example_of_every_unsigned_operation_succeeds_with_records_that_exist(tmp_path: Path) -> None:
    """Else the fuzzer only ever hears 404: give the names a source in fuzzing/real.py or putting_right.py."""
    with world(tmp_path) as one:
        refused = [
            label
            for label, operation in fuzzing.operations(one.schema).items()
            if label not in SIGNED
            and not any(one.ask_at(place, fuzzing.example(operation)) < 400 for place in PLACES[1:])
        ]
    assert not refused


@pytest.mark.long
def test_the_pieces_are_many_thousand_requests_together() -> None:
    found = fuzzing.operations(fuzzing.schema_of())
    systematic = sum(1 for operation in found.values() for _ in fuzzing.systematic(operation))
    assert systematic * len(PLACES) >= AT_LEAST


# The fuzzer itself


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """A number within bounds."""

    number: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 0


async def breaks_at_its_bound(call: Call) -> Alive:
    assert call.query.number < 1_000
    return Alive(status="ok")


async def lies_at_its_bound(call: Call) -> Response:
    body = b'{"status":"ok"}' if call.query.number < 1_000 else b'{"status":"well"}'
    return Response(body, media_type="application/json")


async def speaks_another_language(_: Call) -> Response:
    return Response(b"<ok/>", media_type="application/xml")


async def gives_out(_: Call) -> Submitted:
    return Submitted(ids=("planted-1",), id="planted-1")


async def breaks_on_what_was_given_out(call: Call) -> Alive:
    assert call.path["job_id"] != "planted-1"
    return Alive(status="ok")


def planted(handler: Callable[[Call], Awaitable[object]], path: str = "/api/planted", **more: Any) -> Route:
    return Route(
        request=f"GET {path}",
        name=handler.__name__,
        summary="It was put here to be found.",
        handler=handler,
        role=Role.VIEWER,
        **{"output": Alive, **more},
    )


async def shows_a_lease(_: Call) -> Submitted:
    return Submitted(ids=(f"j_{'0a' * 6}.1.1.{'1b' * 16}",))


async def logs_a_token(call: Call) -> Alive:
    call.parts.log._stream.write(f"il_{'0a' * 8}_{'1b' * 32}")
    return Alive(status="ok")


async def refuses_in_plain_words(_: Call) -> Response:
    return Response(b"no", status_code=400, media_type="text/plain")


@pytest.mark.parametrize(
    ("handler", "fault"),
    [
        (breaks_at_its_bound, "an error of ours; the log has a traceback"),
        (shows_a_lease, "it shows a credential"),
        (logs_a_token, "the log has a credential"),
        (refuses_in_plain_words, "it is 'text/plain; charset=utf-8', not application/problem"),
    ],
)
def test_a_planted_fault_of_any_kind_is_found(
    handler: Callable[[Call], Awaitable[object]], fault: str, tmp_path: Path
) -> None:
    with world(tmp_path, (planted(handler, input=Chosen),)) as one:
        cases = list(fuzzing.systematic(one.operation("GET /api/planted")))
        with pytest.raises(WrongAnswer, match=re.escape(fault)):
            one.try_out(cases, fuzzing.as_made)


@pytest.mark.parametrize(
    ("handler", "fault"),
    [
        (lies_at_its_bound, "Response violates schema"),
        (speaks_another_language, "Undocumented Content-Type"),
    ],
)
def test_a_planted_fault_is_found(
    handler: Callable[[Call], Awaitable[object]], fault: str, tmp_path: Path
) -> None:
    with world(tmp_path, (planted(handler, input=Chosen),)) as one:
        cases = list(fuzzing.systematic(one.operation("GET /api/planted")))
        with pytest.raises(FailureGroup) as found:
            one.try_out(cases, fuzzing.as_made)
    assert fault in [failure.title for failure in found.value.exceptions]


def test_a_planted_fault_behind_a_link_is_found(tmp_path: Path) -> None:
    routes = (
        planted(gives_out, output=Submitted, links=(Link("breaks_on_what_was_given_out", "job_id"),)),
        planted(breaks_on_what_was_given_out, "/api/planted/{job_id}"),
    )
    with pytest.raises(WrongAnswer, match="an error of ours"):
        # Answers of other routes have ids that are drawn: the next walk could not be like the one before.
        fuzzing.walk(tmp_path, routes, within="/api/planted", scenarios=UNTIL_FOUND, steps=STEPS)


def test_a_server_that_never_answers_does_not_hold_the_fuzzer_up(tmp_path: Path) -> None:
    async def never(_: Call) -> Alive:
        await asyncio.Event().wait()
        return Alive(status="ok")

    with world(tmp_path, (planted(never, bounded=False),), patience_s=0.1) as one:
        cases = list(fuzzing.systematic(one.operation("GET /api/planted")))
        with pytest.raises(TimeoutError):
            one.try_out(cases, fuzzing.as_made)
