"""The loops that we are compared with: what somebody writes who needs one queue and nothing else.

Each claims a batch and completes it with the driver's fastest means, with one audit row for each
record and step, in two transactions. A completion is compared by version, as ours is.
"""
