"""Reporting: reporters are notified how a run stands, and at last how it ended.

Reading order:

    report         what is reported, the table of a report, and the interface of reporters
    delivery       what becomes of a report, and one queue for each reporter
    reporter       the link to runs: outcomes in, REPORTED out
    github         commit statuses and check runs
    webhook        signed webhooks; `outbound_http` sends to addresses that users have named
    summary        a run in a few words, for all reporters
"""
