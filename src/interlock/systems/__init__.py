"""The systems that are built on the engine, each a folder of its own.

orchestrator    jobs, attempts, leases: who does what, and what becomes of it
access          who may do what: roles, tokens and sessions that live in the store
catalogue       which kinds of record they keep
meanings        how each state of them looks to people
"""
