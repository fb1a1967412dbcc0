"""The ways to run a handler.

    executor       what each of them does
    asynchronous   in the event loop; a handler that never waits needs no task of asyncio
    threads        in one of a bounded number of threads; it cannot be stopped, only asked to
    subprocesses   in a process of its own, with its own group and memory; it can be killed
    child          that process, from the inside
    orders         what the two say to each other
    groups         processes in groups of their own, and how they are ended with all their kin
    shell          `sh -c` steps with a live log, as a task that is always there

Nothing is imported here: a process of one task starts with `child`, and needs little else.
"""
