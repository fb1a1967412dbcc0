"""Pictures of a machine, made only from its blueprint.

`draw_svg` has its own layout (the happy path is a straight spine) and needs no program or font of the system;
`draw_mermaid` and `draw_dot` write input for other programs.
"""

from __future__ import annotations

from interlock.machine.draw.dot import draw_dot
from interlock.machine.draw.mermaid import draw_mermaid
from interlock.machine.draw.svg import draw_svg

__all__ = ["draw_dot", "draw_mermaid", "draw_svg"]
