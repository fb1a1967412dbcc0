"""Deliveries as GitHub documents them, cut down to what somebody would look at."""

from __future__ import annotations

from typing import Any

A, B, NONE = "a" * 40, "b" * 40, "0" * 40
HERE = {"id": 186853002, "full_name": "acme/shop", "clone_url": "https://github.com/acme/shop.git"}
FORK = {"id": 186853007, "full_name": "mallory/shop", "clone_url": "https://github.com/mallory/shop.git"}


def push(**fields: Any) -> dict[str, Any]:
    """Somebody has pushed one commit to main."""
    commit = {
        "id": B,
        "message": "Sell hats\n\nThey are warm.",
        "added": ["hats.py"],
        "removed": [],
        "modified": ["shop.py"],
    }
    return {
        "ref": "refs/heads/main",
        "before": A,
        "after": B,
        "created": False,
        "deleted": False,
        "forced": False,
        "base_ref": None,
        "compare": "https://github.com/acme/shop/compare/aaaa...bbbb",
        "commits": [commit],
        "head_commit": commit,
        "repository": HERE,
        "pusher": {"name": "ann", "email": "ann@example.org"},
        "sender": {"login": "ann", "id": 1},
        **fields,
    }


def pull_request(
    action: str = "synchronize", *, head: dict[str, Any] | None = HERE, **fields: Any
) -> dict[str, Any]:
    """Something happens to pull request 7."""
    return {
        "action": action,
        "number": 7,
        "pull_request": {
            "number": 7,
            "title": "Sell hats",
            "head": {"ref": "hats", "sha": B, "repo": head},
            "base": {"ref": "main", "sha": A, "repo": HERE},
        },
        "before": "c" * 40,
        "after": B,
        "repository": HERE,
        "sender": {"login": "ann", "id": 1},
        **fields,
    }
