"""Pictures of a machine, made from its blueprint and nothing else.

`draw_svg` has a layout of its own (the happy path is a straight spine) and needs no program or
font of the system; `draw_mermaid` and `draw_dot` write what other programs lay out.
"""

from __future__ import annotations

from interlock.machine.draw.dot import draw_dot
from interlock.machine.draw.mermaid import draw_mermaid
from interlock.machine.draw.svg import draw_svg

__all__ = ["draw_dot", "draw_mermaid", "draw_svg"]
