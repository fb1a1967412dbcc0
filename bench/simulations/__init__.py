"""What simulations cost on Redis, and how quickly they are listed.

races   transitions and heartbeats by many at once, beside a bare script that compares and sets
lists   a page of a hundred thousand, by status
"""
