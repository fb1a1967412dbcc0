"""A step in words."""
from __future__ import annotations
from typing import Any

def tell(world: Any, done: Any, before: Any, after: Any) -> list[str]:
    return [str(done[:3]) + str(done.code)] + ([f"  {l.machine} {l.entity}: {l.source} → {l.target} by {l.event}" for l in done.entry.lines] if done.entry else [])
