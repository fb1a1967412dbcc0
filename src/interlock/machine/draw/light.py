"""What is lit in a picture: the state it is in, and the way it took."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from interlock.errors import UnknownState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from interlock.machine.blueprint import Blueprint
    from interlock.machine.draw.geometry import Route


class Light:
    """What is lit: a state, the states visited, and the transitions between them."""

    def __init__(self, blueprint: Blueprint, current: str | None, path: Sequence[str]) -> None:
        known = [state.name for state in blueprint.states]
        for name in (*([] if current is None else [current]), *path):
            if name not in known:
                raise UnknownState(name, known, where=blueprint.machine)
        self.current = current
        self.visited = frozenset(path)
        self.steps = frozenset(pairwise(path))
        self.dims = bool(path)

    def of_state(self, state: str) -> str:
        """The classes of a state's group."""
        here = state == self.current
        if state in self.visited or here:
            return " visited" * (state in self.visited) + " current" * here
        return " dim" * self.dims

    def lights(self, route: Route) -> bool:
        """Whether the way taken leads along this line."""
        return (route.transition.source, route.transition.target) in self.steps
