"""Jobs, attempts and leases: who does what, and what becomes of it.

Reading order:

    body           what a job is made of, as its record keeps it
    draft          a job while it is decided about; `facts` and `lines` serve it
    submission     from a spec to a job that waits
    grants         from ready jobs to grants; `tokens` are what a grant is held by
    runner_messages  what runners say, judged; `failures` says what a failure is and whether to try again
    cancellation   cancels, and deadlines that have passed
    logs           what handlers write
    orchestrator   what runners speak to, on the engine
    jobs           what people do with jobs; `views` and `explanation` show them, `waiters` waits for them
    embedded       all of it on one connection to a store: the port for workers in this process
    settings       what can be told to be different
"""
