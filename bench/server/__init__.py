"""What one server process does over HTTP, with PostgreSQL behind it.

Reading order:

    house      a server and its database, as somebody runs them, and what they hold of memory
    talking    a client that costs as little as can be, so that the server is what is measured
    cycles     lease, ack and complete: one request each, and in batches
    lists      pages of jobs by filters, with many jobs stored
    streams    many readers of live events
"""
