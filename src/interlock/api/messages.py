"""What several operations share: request ids, pages, filters, the journal of a record, bulk actions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

MAX_PAGE = 1_000

RequestId = Annotated[
    str, Meta(min_length=1, max_length=64, description="The request is done once under it.")
]


Limit = Annotated[int, Meta(ge=1, le=MAX_PAGE, description="How many at most.")]


Cursor = Annotated[str, Meta(max_length=200, description="What the page before has answered.")]


Reason = Annotated[str, Meta(max_length=1_000, description="Why, in words.")]


class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of inputs. A name that means nothing is a mistake, not a default."""


class Output(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of outputs. New fields have a default, so that a client understands older servers."""


class HistoryQuery(Input, frozen=True, kw_only=True):
    """From which version on."""

    after: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Limit = 200


class PageQuery(Input, frozen=True, kw_only=True):
    """Which page."""

    limit: Limit = 200
    cursor: Cursor = ""


class CountView(Output, frozen=True, kw_only=True):
    """How many match; when `capped`, at least that many."""

    number: int
    capped: bool = False


class StepView(Output, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    """One step of one machine."""

    machine: str
    event: str
    source: str
    target: str
    owner: str
    entity: str = ""
    """Which one of those inside the record; missing for the record itself."""
    moves: bool = True


class EntryView(Output, frozen=True, kw_only=True):
    """What the journal says about one change, or about one refusal."""

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


class Done(Output, frozen=True, kw_only=True):
    """A job with which it was done, or would be."""

    id: str
    state: str
    new_id: str | None = None
    """The job that does it again."""


class Undone(Output, frozen=True, kw_only=True):
    """A job with which it could not be done, and why."""

    id: str
    code: str
    error: str


class ActionAnswer(Output, frozen=True, kw_only=True):
    """What has become of an action. `more`: others match that were not looked at."""

    action: str
    dry_run: bool
    done: tuple[Done, ...] = ()
    refused: tuple[Undone, ...] = ()
    more: bool = False
