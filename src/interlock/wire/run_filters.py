"""One way to say which runs are meant, for the command line, the API and the dashboard.

    outcome:failed workflow:ci since:1d      runs of the workflow ci that failed, of the last day
    -state:reported                          those that are not over yet, or not told
    repository:shop/web branch:main          by repository, and by branch; also tag:v1 and ref:refs/…
    sha:5f1c0d0… label:nightly id:r_…        by commit, by label, by id

All words must hold. A run that was reported keeps its outcome, so `outcome` finds it and `state` does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from interlock.errors import UnknownState
from interlock.lifecycles.run import OUTCOMES, RUN
from interlock.wire.filter_parts import Moment, gather, instant, is_one_of, text_of
from interlock.wire.filter_words import BadFilter, Vocabulary, Word, written
from interlock.wire.runs import RunFilter, RunView

RUNS = Vocabulary(
    {
        "state": "running",
        "outcome": "failed",
        "workflow": "ci",
        "repository": "shop/web",
        "branch": "main",
        "tag": "v1",
        "ref": "refs/heads/main",
        "sha": "5f1c0d0",
        "group": "release",
        "label": "nightly",
        "origin": "r_0123456789ab",
        "id": "r_0123456789ab",
        "since": "1d",
        "until": "10m",
    }
)
ID_DIGITS = 12

_STATES = tuple(str(state) for state in RUN.states)
_ID = re.compile(rf"(?:r_)?([0-9a-f]{{1,{ID_DIGITS}}})", re.ASCII | re.IGNORECASE)
_ONE_VALUE = ("workflow", "repository", "ref", "sha", "group", "origin")


class WantedRuns(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which runs are meant; empty parts do not filter."""

    states: tuple[str, ...] = ()
    other_than: tuple[str, ...] = ()
    """States that they are not in."""
    outcomes: tuple[str, ...] = ()
    workflow: str = ""
    repository: str = ""
    ref: str = ""
    sha: str = ""
    group: str = ""
    origin: str = ""
    labels: tuple[tuple[str, ...], ...] = ()
    """One of each group."""
    ids: tuple[str, ...] = ()
    since: Moment | None = None
    until: Moment | None = None

    def __str__(self) -> str:
        """The filter as text, which reads back as the same filter."""
        return " ".join(self._words())

    @property
    def wanted_states(self) -> tuple[str, ...]:
        """The states that a run may be in."""
        return tuple(state for state in self.states or _STATES if state not in self.other_than)

    @property
    def exact(self) -> bool:
        """What the store finds needs no second look."""
        return not self.ids and not self.outcomes and all(len(group) == 1 for group in self.labels)

    def among(self, states: Iterable[str]) -> WantedRuns:
        """The same runs, but only those in one of these states."""
        others = set(_STATES) - set(states)
        left_out = tuple(state for state in _STATES if state in others or state in self.other_than)
        return msgspec.structs.replace(self, other_than=left_out)

    def asked(self, now: datetime) -> RunFilter:
        """What a store is asked for."""
        states = self.wanted_states
        return RunFilter(
            states=states if len(states) < len(_STATES) else (),
            workflow=self.workflow,
            repository=self.repository,
            ref=self.ref,
            sha=self.sha,
            concurrency_group=self.group,
            origin_run_id=self.origin,
            labels=tuple(sorted({group[0] for group in self.labels if len(group) == 1})),
            since=instant(self.since, now),
            until=instant(self.until, now),
        )

    def keeps(self, view: RunView) -> bool:
        """Whether a run is meant, as far as the store could not tell."""
        return (
            view.state in self.wanted_states
            and is_one_of(self.outcomes, view.outcome)
            and is_one_of(self.ids, view.id)
            and all(not set(group).isdisjoint(view.labels) for group in self.labels)
        )

    def _words(self) -> Iterator[str]:
        groups: tuple[tuple[str, tuple[str, ...]], ...] = (
            ("state", self.states),
            ("-state", self.other_than),
            ("outcome", self.outcomes),
            *((name, (value,)) for name in _ONE_VALUE if (value := getattr(self, name))),
            *(("label", group) for group in self.labels),
            ("id", self.ids),
            ("since", () if self.since is None else (text_of(self.since),)),
            ("until", () if self.until is None else (text_of(self.until),)),
        )
        yield from (written(name, values) for name, values in groups if values)


def read_run_filter(text: str) -> WantedRuns:
    """The filter that somebody has typed; what is wrong is named with its place."""
    parts = gather(text, RUNS, _checked)
    names = parts.names
    found = WantedRuns(
        states=names.get("state", ()),
        other_than=names.get("-state", ()),
        outcomes=names.get("outcome", ()),
        labels=tuple(parts.labels),
        ids=names.get("id", ()),
        since=parts.moments.get("since"),
        until=parts.moments.get("until"),
        ref=_ref(text, names),
        **{name: names[name][0] for name in _ONE_VALUE if name in names and name != "ref"},
    )
    if not found.wanted_states:
        raise BadFilter(
            f"The filter {text!r} leaves no state that a run could be in.",
            todo="Leave out state: or -state:.",
            facts={"filter": text},
        )
    return found


def run_id_of(text: str) -> str | None:
    """An id or the beginning of one as runs are called, also without `r_`; None for what is none."""
    found = _ID.fullmatch(text.strip())
    return f"r_{found[1].lower()}" if found else None


def _ref(text: str, names: dict[str, tuple[str, ...]]) -> str:
    """A branch and a tag are refs, said in short."""
    told = [
        f"{prefix}{names[key][0]}"
        for key, prefix in (("branch", "refs/heads/"), ("tag", "refs/tags/"), ("ref", ""))
        if key in names
    ]
    if len(told) > 1:
        raise BadFilter(
            f"The filter {text!r} names several refs, and a run has one.",
            todo="Leave all but one of branch:, tag: and ref: out.",
            facts={"filter": text},
        )
    return told[0] if told else ""


def _checked(word: Word) -> tuple[str, ...]:
    match word.key:
        case "state" | "outcome":
            return tuple(_state(word, name) for name in word.values)
        case "id":
            return tuple(_whole_id(word, name) for name in word.values)
        case "label":
            return word.values
    if len(word.values) > 1:
        raise word.bad(f"{word.key} takes one value", todo="Give one.")
    return word.values if word.key != "origin" else (_whole_id(word, word.values[0]),)


def _state(word: Word, name: str) -> str:
    try:
        state = RUN.state(name)
    except UnknownState as error:
        raise word.bad(error.sentence.rstrip(".?"), allowed=error.allowed, todo=error.todo) from None
    if word.key == "outcome" and state not in OUTCOMES:
        known = tuple(str(outcome) for outcome in OUTCOMES)
        raise word.bad(f"{state} is no outcome", todo=f"Use one of: {', '.join(known)}.", allowed=known)
    return str(state)


def _whole_id(word: Word, name: str) -> str:
    run_id = run_id_of(name)
    if run_id is None or len(run_id) < len("r_") + ID_DIGITS:
        raise word.bad(
            f"{name!r} is not the id of a run, which is r_ and {ID_DIGITS} hex digits",
            todo="Take ids from `interlock run list`.",
        )
    return run_id
