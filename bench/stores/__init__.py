"""What the stores and the engine cost, beside a bare loop with the same driver on the same server.

Reading order:

    errand      the records that are moved, and the machine that says how
    databases   private servers and files, and what is set on them, for ours and for theirs
    bare/       the loops that we are compared with, one for each database
    claims      claim and complete in batches, beside those loops
    grouping    single commits of many callers: together, or one at a time
    flat        the same work with a short queue and with a long one
    memory      what the process holds after many commits
"""
