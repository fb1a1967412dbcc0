"""What comes in: webhooks that ask for runs.

Reading order:

    signatures   whether a delivery comes from whom it says: over the raw bytes, in constant time
    github       what an event of GitHub says about a change
    generic      what anybody else's webhook says, by a mapping from the settings
    rules        which workflow a change is evaluated with
    deliveries   the way of a delivery: verified, read, mapped, submitted once
"""
