"""Mermaid and Graphviz text."""

from __future__ import annotations

import re

from interlock.machine.blueprint import Blueprint, StateSheet, TransitionSheet
from interlock.machine.draw import draw_dot, draw_mermaid


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


def test_mermaid_shows_start_moves_and_ends(samples: dict[str, Blueprint]) -> None:
    found = lines(draw_mermaid(samples["lease"]))
    assert found[0] == "stateDiagram-v2"
    assert "[*] --> GRANTED" in found
    assert "GRANTED --> ACTIVE : ack" in found
    assert "COMPLETED --> [*]" in found
    assert "class EXPIRED,REVOKED,COMPLETED,CANCELED terminal" in found
    assert "class GRANTED,ACTIVE,COMPLETED spine" in found


def test_mermaid_merges_events_between_the_same_states(samples: dict[str, Blueprint]) -> None:
    found = lines(draw_mermaid(samples["attempt"]))
    assert "STARTING --> RUNNING : heartbeat / report_running" in found
    assert sum(line.startswith("STARTING --> RUNNING") for line in found) == 1


def test_mermaid_names_every_pair_of_states_that_is_joined(sample: Blueprint) -> None:
    arrows = [line for line in lines(draw_mermaid(sample)) if " : " in line]
    assert len(arrows) == len({(t.source, t.target) for t in sample.transitions})


def test_the_mermaid_output_escapes_characters_that_are_mermaid_syntax(samples: dict[str, Blueprint]) -> None:
    text = draw_mermaid(samples["hostile"])
    assert 'state "#60;a #38; #34;b#34;#62;" as state_0' in text
    assert "state_0 --> state_1 : go #60;now#62;" in text
    assert "\0" not in text
    plain = re.sub(r"#\d+;", "", text)
    for line in lines(plain)[1:]:
        quoted = re.sub(r'^state "[^"]*" as', "", line)
        assert '"' not in quoted or line.startswith("%%")


def test_the_mermaid_output_never_uses_a_reserved_word_as_an_id() -> None:
    states = (StateSheet("end", terminal=True), StateSheet("state_0", terminal=False))
    move = TransitionSheet("go", "state_0", "end", "me")
    found = lines(draw_mermaid(Blueprint("m", "state_0", states, (move,))))
    assert 'state "end" as state_0_' in found
    assert "state_0 --> state_0_ : go" in found


def test_dot_doubles_terminal_borders_and_colours_by_owner(samples: dict[str, Blueprint]) -> None:
    text = draw_dot(samples["lease"])
    assert re.search(r'"EXPIRED" \[.*peripheries="2"', text)
    assert not re.search(r'"ACTIVE" \[.*peripheries', text)
    ack = next(line for line in lines(text) if line.startswith('"GRANTED" -> "ACTIVE"'))
    ttl = next(line for line in lines(text) if line.startswith('"GRANTED" -> "EXPIRED"'))
    assert colour(ack) != colour(ttl)
    assert 'weight="20"' in ack
    assert 'group="spine"' in text


def colour(line: str) -> str:
    found = re.search(r' color="(#\w+)"', line)
    assert found is not None
    return found.group(1)


def test_dot_has_every_state_and_every_pair(sample: Blueprint) -> None:
    found = lines(draw_dot(sample))
    assert sum(" -> " in line for line in found if "weight=20]" not in line) == len(
        {(t.source, t.target, t.owner) for t in sample.transitions}
    )


def test_dot_escapes_quotes_backslashes_and_entities(samples: dict[str, Blueprint]) -> None:
    text = draw_dot(samples["hostile"])
    assert r'label="<a &amp; \"b\">\na <b>"' in text
    assert r'"end\\ of; {line}\n#1: [*] --> ~"' in text
    strings = re.findall(r'"(?:[^"\\]|\\.)*"', text)
    left = text
    for string in strings:
        left = left.replace(string, "", 1)
    assert '"' not in left


def test_dot_starts_at_a_point_that_is_no_state() -> None:
    states = (StateSheet("x", terminal=False), StateSheet("x start", terminal=False))
    found = lines(draw_dot(Blueprint("m", "x", states, ())))
    assert '"x start start" -> "x" [weight=20];' in found
