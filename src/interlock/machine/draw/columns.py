"""How tall boxes are, and where they stand in their column."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median_low
from typing import TYPE_CHECKING

from interlock.machine.draw.geometry import GRID_PX, up_to_grid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GAP_PX = 30
PILL_PAD_PX = 4
_ARROW_AND_AIR_PX = 30


def gap_px(pill_h_px: int | None, *, entry_below: bool) -> int:
    """The space between two boxes: room for the label of the line that joins them."""
    gap = GAP_PX if pill_h_px is None else pill_h_px + PILL_PAD_PX + _ARROW_AND_AIR_PX
    return up_to_grid(gap + (GAP_PX if entry_below else 0))


def from_the_top(heights_px: Sequence[int], gaps_px: Sequence[int]) -> list[int]:
    """Tops of boxes that stand one below the other; `gaps_px[i]` is below box i."""
    tops, y = [], 0
    for height, gap in zip(heights_px, [*gaps_px, 0], strict=False):
        tops.append(y)
        y += height + gap
    return tops


@dataclass(slots=True)
class _Pile:
    """Boxes that touch, and where each of them would like the pile to begin."""

    size: int
    wishes: list[int]

    @property
    def start(self) -> int:
        return median_low(self.wishes) if self.wishes else 0


def near_wishes(
    heights_px: Sequence[int], gaps_px: Sequence[int], wishes: Mapping[int, Sequence[int]]
) -> list[int]:
    """Tops as near as possible to where the boxes want to be, in order and without overlap.

    Seen from the place that each box has in the closest packing, a wish is a shift, and the shifts
    must not decrease downwards. So boxes that would collide are piled up, and a pile stands at the
    median of its wishes: most of its lines are then straight.
    """
    packed = from_the_top(heights_px, gaps_px)
    piles: list[_Pile] = []
    for index, top in enumerate(packed):
        mine = [wish - top for wish in wishes.get(index, ())]
        piles.append(_Pile(1, mine))
        while len(piles) > 1 and _collide(piles[-2], piles[-1]):
            lower = piles.pop()
            piles[-1] = _Pile(piles[-1].size + lower.size, piles[-1].wishes + lower.wishes)
    shifts = [pile.start for pile in piles for _ in range(pile.size)]
    return [top + round(shift / GRID_PX) * GRID_PX for top, shift in zip(packed, shifts, strict=True)]


def _collide(upper: _Pile, lower: _Pile) -> bool:
    """A box without wishes stands with its neighbour."""
    return not lower.wishes or not upper.wishes or upper.start > lower.start
