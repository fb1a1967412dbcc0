"""The systems that are built on the engine, each a folder of its own.

orchestrator    jobs, attempts, leases: who does what, and what becomes of it
"""
