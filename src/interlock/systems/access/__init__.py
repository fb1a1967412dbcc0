"""Access control: tokens with a role, stored like all other records.

Reading order:

    principals      the principal of a request, and the permissions of a role
    tokens          the lifecycle of tokens, their secrets; create, list and revoke them
    authentication  from the text of a token or a session to a principal
"""
