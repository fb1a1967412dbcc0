"""The services of a server over HTTP, for programs without access to the store.

Reading order:

    interfaces   protocols that a store and a server both implement, made from the clients below
    reach        a connection to either, as the command line needs it
    http_client  calls an operation: its request with retries, its answer, and errors by their code
    jobs         jobs, their logs and artifacts, and queues; one module for each further noun
    services     all of it together, on one connection
"""

from __future__ import annotations


def is_server(url: str) -> bool:
    """Return whether a URL names a server, and not a store."""
    return url.lower().startswith(("http://", "https://"))
