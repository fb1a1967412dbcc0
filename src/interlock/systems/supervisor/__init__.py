"""The supervisor: a record of every worker's life, and orders that are carried out for certain.

body        what the record of a worker keeps
validation  what a registration must satisfy
deciding    pure: what an event makes of a worker, and what follows for others
stop_notices   workers are told at once of what others have stopped
lease_release  the leases of a worker that has ended return to the queue
workers     what people, programs and the workers themselves do with all that
search      which workers a filter means, and with which of them something can be done
"""
