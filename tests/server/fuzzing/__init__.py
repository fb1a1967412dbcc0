"""A fuzzer that reads the OpenAPI document: makes requests of it, sends them, and judges the answers.

The requests are made by schemathesis. They go to the application itself, which saves the time that
sockets take; its store is a file, and everything behind the gate is as in a server. The event loop
runs only while somebody asks, so a piece of fuzzing does the same every time.

Most of what a fuzzer makes up is about jobs that do not exist. So each request is sent several times:
as it was made, and to each of several places with the ids, tokens and cursors that are real there.
"""

from tests.server.fuzzing.cases import drawn, example, operations, schema_of, systematic
from tests.server.fuzzing.places import PLACES, as_made, at_work, waiting
from tests.server.fuzzing.walking import walk
from tests.server.fuzzing.world import Place, World, world

__all__ = [
    "PLACES",
    "Place",
    "World",
    "as_made",
    "at_work",
    "drawn",
    "example",
    "operations",
    "schema_of",
    "systematic",
    "waiting",
    "walk",
    "world",
]
