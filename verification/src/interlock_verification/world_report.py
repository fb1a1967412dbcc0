"""Run `interlock verify world` and print the findings.

A progress bar, a table, and the story that replays a failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import typer

from interlock.cli.agent import check_installed
from interlock.cli.output import Sheet, on_terminal, print_json, print_sheets
from interlock.text import counted
from interlock_verification.report import bar, print_text
from interlock_verification.worlds.campaign import Campaign, play_all, shrunk
from interlock_verification.worlds.episode import Episode, EpisodeResult
from interlock_verification.worlds.faults import MIXES
from interlock_verification.worlds.worlds import WORLDS, world_named

OLD_KEYS = {
    "episode": "chapter",
    "episodes": "chapters",
    "episode_h": "chapter_h",
    "short_episode_h": "scene_h",
}
"""Earlier names of keys in the JSON output, which are printed as well."""
LAST_LINES = 40
SHRINK_S = 60.0


def print_worlds(*, as_json: bool) -> None:
    """Print the tables of worlds and of fault mixes."""
    if as_json:
        print_json(_with_old_keys({"worlds": WORLDS, "faults": MIXES}))
        return
    worlds = [
        (world.name, f"{world.orchestrators} + {world.workers} + {world.embedded}", world.doc)
        for world in WORLDS
    ]
    columns = ("world", "servers + workers + workers alone", "what it is like")
    print_sheets(
        [
            Sheet("world", "", columns, worlds),
            Sheet("faults", "", ("faults", "what goes wrong"), [(mix.name, mix.doc) for mix in MIXES]),
        ]
    )


def play_campaign(episodes: Sequence[Episode], *, processes: int, as_json: bool) -> bool:
    """Run these episodes and print the findings; return whether all is well."""
    if any(world_named(episode.world).agents for episode in episodes):
        check_installed()
    with bar("simulated hours", round(sum(episode.hours for episode in episodes))) as watch:
        campaign = play_all(
            episodes, processes=processes, progress=lambda hours: watch("worlds", round(hours), 0)
        )
    smaller = [_smaller(played) for played in campaign.failures[:1]]
    if as_json:
        found = {"ok": campaign.ok, **msgspec.structs.asdict(campaign), "shrunk": smaller}
        print_json(_with_old_keys(found))
    else:
        _print_campaign(campaign)
        for played in smaller:
            for text in story_of(played):
                print_text(text)
    return campaign.ok


def _with_old_keys(found: object) -> Any:
    """Return JSON data in which renamed keys have both names."""
    return _doubled(msgspec.to_builtins(found))


def _doubled(found: Any) -> Any:
    match found:
        case dict():
            values = {key: _doubled(value) for key, value in found.items()}
            return values | {OLD_KEYS[key]: value for key, value in values.items() if key in OLD_KEYS}
        case list() | tuple():
            return [_doubled(each) for each in found]
        case _:
            return found


def _smaller(played: EpisodeResult) -> EpisodeResult:
    """Return the shrunk episode; one with explicit faults is not shrunk."""
    return shrunk(played, within_s=0.0 if played.episode.only is not None else SHRINK_S)


def _print_campaign(campaign: Campaign) -> None:
    rows = [
        ("simulated", f"{counted(round(campaign.hours), 'hour')} ({campaign.hours / 8_766:.2f} years)"),
        ("episodes", f"{campaign.episodes:,}"),
        ("faults", f"{campaign.faults.total():,}"),
        *((f"  {what}", f"{number:,}") for what, number in campaign.faults.most_common()),
        ("jobs submitted", f"{campaign.submitted:,}"),
        ("jobs settled", f"{campaign.settled:,}"),
        ("processor time", f"{campaign.seconds:,.0f} s"),
        ("verdict", _verdict(campaign)),
    ]
    print_sheets([Sheet("campaign", "", ("what", "how much"), rows)])
    if on_terminal():
        seen = ", ".join(f"{event} ({number:,})" for event, number in campaign.seen.most_common(8))
        print_text(f"Seen most: {seen}.")


def _verdict(campaign: Campaign) -> str:
    if campaign.failures:
        claims = {played.broken.claim for played in campaign.failures if played.broken is not None}
        return f"broken in {len(campaign.failures)} episodes: {'; '.join(sorted(claims))}"
    return (
        f"no violation, but never seen: {'; '.join(campaign.unseen)}"
        if campaign.unseen
        else "every claim holds"
    )


def story_of(played: EpisodeResult) -> Iterator[str]:
    """Yield the broken claim, its events, and the command to replay it.

    The events led to the broken claim.
    """
    broken, episode = played.broken, played.episode
    yield ""
    if broken is None:
        yield "It does not happen again: something in it depends on more than its seed. Please report that."
    else:
        yield typer.style(f"Broken: {broken.claim}", fg="red", bold=True)
        yield broken.description
        faults = len(episode.only or ())
        yield f"{faults} fault{'s' if faults != 1 else ''} of {episode.faults} lead there:"
        yield from (typer.style(f"  {line}", dim=True) for line in played.story[-LAST_LINES:])
    yield f"Again: {command_of(episode)}"


def command_of(episode: Episode) -> str:
    """Return the command that replays an episode."""
    only = "" if episode.only is None else f" --only {','.join(episode.only) or 'none'}"
    return (
        f"interlock verify world --world {episode.world} --faults {episode.faults} "
        f"--seed {episode.seed} --hours {episode.hours:g}{only}"
    )
