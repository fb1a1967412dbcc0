"""Jobs, attempts and leases: claims, reports, deadlines, cancellation.

Reading order:

    body             the record of a job, as the store keeps it
    aggregate        a job while it is decided about
    submission       from a spec to a job that waits for a worker
    grants           from ready jobs to grants; `tokens` are what a grant is held by
    runner_messages  decide what runners report; `failures` classifies failures and says whether to retry
    cancellation     cancels, and deadlines that have passed
    orchestrator     what runners talk to: claim, report, sweep
    jobs             what people do with jobs; `views` and `explanation` show them, `waiters` waits for them
    notifications    messages of a job to its run, its tree and its simulation
    trees            trees of jobs; `tree_slots` limits how many run at each depth
    attachments      logs, large results and artifacts
    queues           pause and resume queues
    vault            secrets
    settings         durations, retries and limits
"""
