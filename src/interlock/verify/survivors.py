"""Mutants that nothing notices, each with the reason why it does no harm; reviewed by hand.

The list is survivors.toml, beside this file.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files


@cache
def harmless() -> dict[str, str]:
    """The name of each, and the reason."""
    text = files("interlock.verify").joinpath("survivors.toml").read_text(encoding="utf-8")
    return {one["mutant"]: " ".join(one["why"].split()) for one in tomllib.loads(text).get("survivor", [])}
