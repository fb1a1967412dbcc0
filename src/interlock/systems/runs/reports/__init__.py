"""Reporting: reporters are notified about the state of a run, and finally its outcome.

Reading order:

    report         the content of a report, its table, and the interface of reporters
    delivery       the decisions about a report, and one queue for each reporter
    reporter       the link to runs: outcomes in, REPORTED out
    github         commit statuses and check runs
    webhook        signed webhooks; `outbound_http` sends to addresses that users have named
    summary        a run in a few words, for all reporters
"""
