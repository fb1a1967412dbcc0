"""Jobs, attempts and leases: claims, reports, deadlines, cancellation.

Reading order:

    body             the record of a job
    aggregate        the working copy of a job
    submission       from a spec to a job that waits for a worker
    grants           from ready jobs to grants; `tokens` are the lease tokens
    runner_messages  decide about reports of runners; `failures` classifies failures and decides about retries
    cancellation     cancel requests and passed deadlines
    orchestrator     the interface for runners: claim, report, sweep
    jobs             the operations on jobs; `views` and `explanation` show them, `waiters` waits for them
    notifications    messages of a job to its run, its tree and its simulation
    trees            trees of jobs; `tree_slots` limits how many run at each depth
    attachments      logs, large results and artifacts
    queues           pause and resume queues
    vault            secrets
    settings         durations, retries and limits
"""
