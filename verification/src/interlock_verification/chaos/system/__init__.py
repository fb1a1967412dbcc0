"""The whole system as it is run: servers and workers as processes, on a real database, under every fault.

Reading order:

    errands     what the workers do
    ways        the rules that a broken fleet is run without
    program     what a process of the fleet runs
    zygote      where the processes come from
    members     one server or worker: started, killed, frozen, asked to go
    fleet       all of them, with the wires between them
    clients     who submits, again and again until it was acknowledged; and a runner that comes too late
    lag         how long each has waited for a processor
    troubles    what is done to the fleet
    chronicle   the journal, read back: who was given what, and what became of it
    judging     which promises were broken
    harness     one run from beginning to end
"""
