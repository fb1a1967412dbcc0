"""What crosses a process: plain structs, the same whether they travel through memory or over HTTP.

Reading order:

    jobs             what is submitted, and how a job is shown; likewise `runs`, `simulations`, `workloads`
    filters          one grammar of filters for the command line, the API and the dashboard
    runner           messages between a runner and the orchestrator
    metrics          what is counted, and under which names
    figures          how the system is doing, over time
    json_values      JSON decoders, and checks of values that are stored as they are
    credentials      find and redact secrets in text
"""
