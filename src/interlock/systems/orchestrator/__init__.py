"""Jobs, attempts and leases: claims, reports, deadlines, cancellation.

Reading order:

    body              the record of a job
    aggregate         the working copy of a job; `shapes`: which jobs are decided alike
    submission        from a spec to a job that waits for a worker; `ids`, `texts`
    grants            from ready jobs to grants; `tokens` are the lease tokens
    runner_messages   decide about reports of runners; `failures` decides about retries
    joint_reports     successes of jobs that were granted together
    cancellation      cancel requests and passed deadlines
    orchestrator      the interface for runners: claim, report, sweep
    jobs              the operations on jobs; `views` and `explanation` show them, `waiters` waits for them
    transactions      submit and complete in a transaction of the user
    notifications     messages of a job to its run, its tree and its simulation
    dependencies      which job comes after which; `followers` tells them of ends
    uniqueness        at most one job that counts has a key
    trees             trees of jobs; `tree_slots` limits how many run at each depth
    gates             limits: the holders and the line of a key; `admissions` admits jobs
    limits            the operations on limits; `limit_views` shows them
    batches           many jobs with one progress, one cancel and one callback
    dead_letters      failed jobs that have no try left
    waits             signals and approvals; `wait_records`, `mailboxes`, `planned_approvals`
    attachments       logs, large results and artifacts
    queues            pause and resume queues
    vault             secrets
    settings          durations, retries and limits
"""
