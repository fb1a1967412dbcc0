"""The operations of the HTTP API, each declared once as a typed value.

Reading order:

    operation  the declaration of an operation, and its address
    messages   types that several operations share: pages, filters, request ids
    problems   the body of an error
    jobs       one module for each noun: its inputs, its outputs and its operations
    table      all of them

The server binds a handler to each of them (`interlock.server.api`), the client calls them
(`interlock.remote`), and the OpenAPI document and `docs/reference/http-api.md` list them.
"""
