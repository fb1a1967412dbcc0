"""The HTTP server: exposes the operations of the systems to people, programs and runners.

Reading order:

    routes          a route: an operation of `interlock.api` and its handler
    api/            the handlers, one file for each noun; `api.ROUTES` is all of them
    history         entries of the journal, for display; `queues` lists those, `bulk` changes many records
    endpoint        all routes of one path: decode, call the handler, encode
    requests        bodies and queries of requests, with limits
    middleware      for every request: check the host, authenticate, log, answer errors
    authentication  session cookies and leases as credentials
    cross_origin    the headers for pages of other origins (CORS)
    problems        errors as problem+json
    limits          limits of concurrency, rate, connections and time
    openapi         the operations as an OpenAPI document
    app             the whole application
    parts           the objects that routes use, and the background loops of the store
    event_streams   one reader of the journal, and the event streams made from it
    long_poll       requests that wait: for jobs, for orders, for the end of a job
    metrics         the counters, `queue_metrics` by queue; `grafana` has the dashboard for them
    web             the pages of the dashboard
    logs            the log of the server
    sockets         sockets, signals and shutdown; `settings` for all of it
    connections     one connection; `cycle` is one request of it with its response
"""
