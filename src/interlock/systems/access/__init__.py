"""Who may do what: tokens with a role, kept in the store like everything else.

Reading order:

    principals   who is asking, and what a role allows
    lifecycle    the life of a token, as a table
    secret       what a token looks like, and what is kept of it
    tokens       making, listing and revoking them
    authentication  from the text of a token to whoever it stands for
"""
