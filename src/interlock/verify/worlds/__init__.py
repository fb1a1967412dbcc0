"""Whole worlds on virtual time: the real orchestrators, workers and sweeps, years of them in minutes.

scheduler    the time of a world, and event loops on it
plan         what worlds and faults are made of; `worlds` and `mixes` are the tables of them
fates        what goes wrong when, drawn from a seed
stage        processes, and the network between them; `calls` is one call over it
storage      the store, seen through connections that break
casts        who lives there: orchestrators, workers, people
judge        what is claimed, asked of every write; `watcher` keeps the trace and the story
episode      one chapter, from the first start to the last check
shrink       a failing chapter with as few faults as it takes
chapters     many of them, side by side
"""
