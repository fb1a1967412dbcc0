"""The HTTP server: reach for people, programs and runners. It has no rules of its own.

Reading order:

    routes       what a route is: an operation of `interlock.api` and its handler
    api/         the handlers, one file for each noun; `api.ROUTES` is all of them
    history      entries of the journal as they are shown
    endpoint     from a route to something that answers
    requests     the bodies and queries of requests, within bounds
    middleware   what every request passes: where it comes from, who it is, how it ends
    problems     every error, as problem+json
    limits       how much is too much
    openapi      the operations as an OpenAPI document
    app          all of it together
    parts        what the routes work with, and the loops that look after the store
    event_streams  one reader of the journal, and the streams of events made from it
    long_poll    requests that wait: for work, for orders, for the end of a job
    metrics      what is counted; `grafana` has the dashboard for it
    logs         what is written
    sockets      sockets (`connections`), signals and the end; `settings` for all of it
"""
