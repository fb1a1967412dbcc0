"""Structs that cross a process boundary, in memory or over HTTP.

Reading order:

    jobs             specifications and views of jobs; likewise `runs`, `simulations`, `workloads`, `batches`,
                     `schedules`, `limits`, `waits`, `artifacts`, `workers`, `access`, `records`
    calendar         fire times of schedules
    filters          one grammar of filters for the command line, the API and the dashboard: `filter_language`
    runner           messages between a runner and the orchestrator
    metrics          the metrics and their names
    figures          figures of jobs over time
    json_values      JSON decoders, and checks of values that are stored as they are
    fleet            messages between a controller and its agents, generated
    tls              certificate authorities and files
    credentials      find and redact secrets in text
"""
