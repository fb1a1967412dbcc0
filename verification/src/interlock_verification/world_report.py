"""Run `interlock verify world` and print the findings.

A progress bar, a table, and the story that replays a failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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

LAST_LINES = 40
SHRINK_S = 60.0


def print_worlds(*, as_json: bool) -> None:
    """Print the tables of worlds and of fault mixes."""
    if as_json:
        print_json({"worlds": msgspec.to_builtins(WORLDS), "faults": msgspec.to_builtins(MIXES)})
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


def play_season(chapters: Sequence[Episode], *, processes: int, as_json: bool) -> bool:
    """Run these episodes and print the findings; return whether all is well."""
    if any(world_named(chapter.world).agents for chapter in chapters):
        check_installed()
    with bar("simulated hours", round(sum(chapter.hours for chapter in chapters))) as watch:
        season = play_all(
            chapters, processes=processes, progress=lambda hours: watch("worlds", round(hours), 0)
        )
    smaller = [_smaller(played) for played in season.failures[:1]]
    if as_json:
        print_json({"ok": season.ok, **msgspec.to_builtins(season), "shrunk": msgspec.to_builtins(smaller)})
    else:
        _print_season(season)
        for played in smaller:
            for text in story_of(played):
                print_text(text)
    return season.ok


def _smaller(played: EpisodeResult) -> EpisodeResult:
    """Return the shrunk episode; one with explicit faults is not shrunk."""
    return shrunk(played, within_s=0.0 if played.chapter.only is not None else SHRINK_S)


def _print_season(season: Campaign) -> None:
    rows = [
        ("simulated", f"{counted(round(season.hours), 'hour')} ({season.hours / 8_766:.2f} years)"),
        ("chapters", f"{season.chapters:,}"),
        ("faults", f"{season.faults.total():,}"),
        *((f"  {what}", f"{number:,}") for what, number in season.faults.most_common()),
        ("jobs submitted", f"{season.submitted:,}"),
        ("jobs settled", f"{season.settled:,}"),
        ("processor time", f"{season.seconds:,.0f} s"),
        ("verdict", _verdict(season)),
    ]
    print_sheets([Sheet("season", "", ("what", "how much"), rows)])
    if on_terminal():
        seen = ", ".join(f"{sight} ({number:,})" for sight, number in season.seen.most_common(8))
        print_text(f"Seen most: {seen}.")


def _verdict(season: Campaign) -> str:
    if season.failures:
        claims = {played.broken.claim for played in season.failures if played.broken is not None}
        return f"broken in {len(season.failures)} chapters: {'; '.join(sorted(claims))}"
    return (
        f"no violation, but never seen: {'; '.join(season.unseen)}" if season.unseen else "every claim holds"
    )


def story_of(played: EpisodeResult) -> Iterator[str]:
    """Yield the broken claim, the events that led to it, and the command that replays it."""
    broken, chapter = played.broken, played.chapter
    yield ""
    if broken is None:
        yield "It does not happen again: something in it depends on more than its seed. Please report that."
    else:
        yield typer.style(f"Broken: {broken.claim}", fg="red", bold=True)
        yield broken.description
        faults = len(chapter.only or ())
        yield f"{faults} fault{'s' if faults != 1 else ''} of {chapter.faults} lead there:"
        yield from (typer.style(f"  {line}", dim=True) for line in played.story[-LAST_LINES:])
    yield f"Again: {command_of(chapter)}"


def command_of(chapter: Episode) -> str:
    """Return the command that replays an episode."""
    only = "" if chapter.only is None else f" --only {','.join(chapter.only) or 'none'}"
    return (
        f"interlock verify world --world {chapter.world} --faults {chapter.faults} "
        f"--seed {chapter.seed} --hours {chapter.hours:g}{only}"
    )
