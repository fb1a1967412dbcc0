"""The supervisor: a record of every worker's life, and orders that are reliably carried out.

settings    the heartbeat of workers, and the silence that ends them
aggregate   the record of a worker, and the decisions about it. Pure
leases      the jobs of a worker: list, release, notify it of stops
workers     the operations on workers, for people, programs and workers; pools, search
"""
