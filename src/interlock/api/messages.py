"""Types that several operations share: request ids, pages, filters, the journal of a record, bulk actions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

MAX_PAGE = 1_000

RequestId = Annotated[
    str,
    Meta(min_length=1, max_length=64, description="Idempotency key: a repeated request is executed once."),
]


Limit = Annotated[int, Meta(ge=1, le=MAX_PAGE, description="Maximum number of results.")]


Cursor = Annotated[str, Meta(max_length=200, description="Cursor from the previous page.")]


Reason = Annotated[str, Meta(max_length=1_000, description="Why, in words.")]


class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of inputs. An unknown field is an error."""


class Output(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of outputs. New fields have a default, so that a client can read the answers of older servers."""


class ReasonedRequest(Input, frozen=True, kw_only=True):
    """Base of requests that need no more than a reason."""

    reason: Reason = ""
    request_id: RequestId | None = None


class HistoryQuery(Input, frozen=True, kw_only=True):
    """Page of the journal of a record, by version."""

    after: Annotated[int, Meta(ge=0, le=2**53, description="Only entries after this version.")] = 0
    limit: Limit = 200
    newest: Annotated[
        bool, Meta(description="Return the last entries instead of the first ones; still oldest first.")
    ] = False


class PageQuery(Input, frozen=True, kw_only=True):
    """Page of a list."""

    limit: Limit = 200
    cursor: Cursor = ""


class CountView(Output, frozen=True, kw_only=True):
    """Number of matches; a lower bound when `capped`."""

    number: int
    capped: bool = False


class StepView(Output, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    """A step of a machine."""

    machine: str
    event: str
    source: str
    target: str
    owner: str
    entity: str = ""
    """Entity inside the record; missing for the record itself."""
    moves: bool = True


class EntryView(Output, frozen=True, kw_only=True):
    """Entry of the journal about a change or a refusal."""

    cursor: str
    at: datetime
    kind: str
    id: str
    version: int
    steps: tuple[StepView, ...] = ()
    actor: str = ""
    reason: str = ""
    cause: str = ""
    request_id: str = ""
    refusal: str = ""


class HistoryPage(Output, frozen=True, kw_only=True):
    """The journal of one record, oldest first. `after` is for the next page, and is missing at the end."""

    entries: tuple[EntryView, ...]
    after: int | None = None
    older: bool = False
    """With `newest`: there are entries before these."""


class Done(Output, frozen=True, kw_only=True):
    """A record on which the action was carried out, or would be."""

    id: str
    state: str
    new_id: str | None = None
    """Id of the retry or rerun."""


class Undone(Output, frozen=True, kw_only=True):
    """A record on which the action was refused, and the reason."""

    id: str
    code: str
    error: str


class ActionAnswer(Output, frozen=True, kw_only=True):
    """Result of an action. `more`: further records match that were not examined."""

    action: str
    dry_run: bool
    done: tuple[Done, ...] = ()
    refused: tuple[Undone, ...] = ()
    more: bool = False
