"""Simulations: long, stepped work that can be paused, resumed and survives its worker.

Read `pulse` (why there are two records), `body`, `draft` (what an event makes of both), `worded`
(what workers say), then `manager`, the door to all of it.
"""
