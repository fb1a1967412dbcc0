"""One way to say which runs are meant, for the command line, the API and the dashboard.

    outcome:failed workflow:ci since:1d      runs of the workflow ci that failed, of the last day
    -state:reported                          those that are not over yet, or not told
    repository:shop/web branch:main          by repository, and by branch; also tag:v1 and ref:refs/…
    sha:5f1c0d0… label:nightly id:r_…        by commit, by label, by id

All words must hold. A run that was reported keeps its outcome, so `outcome` finds it and `state` does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from interlock.lifecycles.run import OUTCOMES, RUN
from interlock.wire.filter_parts import gather, instant, is_one_of
from interlock.wire.filter_words import BadFilter, Vocabulary, Word
from interlock.wire.runs import RunFilter, RunView
from interlock.wire.wanted import Said, Wanted, check_possible, common_parts, id_of, state_of, whole_id

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
    },
    states=tuple(map(str, RUN.states)),
)

_ONE_VALUE = ("workflow", "repository", "ref", "sha", "group", "origin")


class WantedRuns(Wanted, frozen=True, kw_only=True, omit_defaults=True):
    """Which runs are meant; empty parts do not filter."""

    machine = RUN
    outcomes: tuple[str, ...] = ()
    workflow: str = ""
    repository: str = ""
    ref: str = ""
    sha: str = ""
    group: str = ""
    origin: str = ""

    @property
    def exact(self) -> bool:
        """What the store finds needs no second look."""
        return not self.ids and not self.outcomes and all(len(group) == 1 for group in self.labels)

    def asked(self, now: datetime) -> RunFilter:
        """What a store is asked for."""
        return RunFilter(
            states=self.asked_states,
            workflow=self.workflow,
            repository=self.repository,
            ref=self.ref,
            sha=self.sha,
            concurrency_group=self.group,
            origin_run_id=self.origin,
            labels=self.sure_labels,
            since=instant(self.since, now),
            until=instant(self.until, now),
        )

    def keeps(self, view: RunView) -> bool:
        """Whether a run is meant, as far as the store could not tell."""
        return self.knows(view.id, view.state, view.labels) and is_one_of(self.outcomes, view.outcome)

    def own_words(self) -> Iterator[Said]:
        """The outcome, and where it comes from."""
        yield "outcome", self.outcomes
        yield from ((name, (value,)) for name in _ONE_VALUE if (value := getattr(self, name)))


def read_run_filter(text: str) -> WantedRuns:
    """The filter that somebody has typed; what is wrong is named with its place."""
    parts = gather(text, RUNS, _checked)
    names = parts.names
    said = common_parts(parts)
    said |= {name: names[name][0] for name in _ONE_VALUE if name in names}
    said["ref"] = _ref(text, names)
    found = WantedRuns(outcomes=names.get("outcome", ()), **said)
    check_possible(found, text)
    return found


def run_id_of(text: str) -> str | None:
    """An id or the beginning of one as runs are called, also without `r_`; None for what is none."""
    return id_of(text, "r")


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
        case "state":
            return tuple(state_of(word, name, RUN) for name in word.values)
        case "outcome":
            return tuple(_outcome(word, name) for name in word.values)
        case "id":
            return tuple(whole_id(word, name, "r", RUN.name) for name in word.values)
        case "label":
            return word.values
    if len(word.values) > 1:
        raise word.bad(f"{word.key} takes one value", todo="Give one.")
    return word.values if word.key != "origin" else (whole_id(word, word.values[0], "r", RUN.name),)


def _outcome(word: Word, name: str) -> str:
    state = state_of(word, name, RUN)
    known = tuple(str(outcome) for outcome in OUTCOMES)
    if state not in known:
        raise word.bad(f"{state} is no outcome", todo=f"Use one of: {', '.join(known)}.", allowed=known)
    return state
