"""The systems that are built on the engine, each a package or a module.

orchestrator    jobs, attempts, leases
runs            plans of jobs, and their reports
schedules       jobs at certain times
simulations     stepped work
fleet           workloads on agents
supervisor      workers
access          roles, tokens and sessions
figures         statistics from the journal
kinds, records  kinds that users declare, and their records
quarantine      runners that keep losing jobs
catalogue       the kinds of record
runtime         all of them on one store
"""
