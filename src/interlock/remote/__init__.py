"""The services of a server over HTTP: what a program does with a store, done through a server.

Reading order:

    interfaces   what a store and a server both offer to programs, as protocols
    http_client  calls an operation: its request with retries, its answer, and errors by their code
    jobs         jobs, their logs and artifacts, and queues; one module for each further noun
    services     all of it together, on one connection
"""

from __future__ import annotations


def is_server(url: str) -> bool:
    """Whether a URL names a server, and not a store."""
    return url.lower().startswith(("http://", "https://"))
