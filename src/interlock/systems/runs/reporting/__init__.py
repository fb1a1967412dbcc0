"""What goes out: whoever waits for a run is told how it stands, and at last how it ended.

Reading order:

    port         what is told, what a reporter is, and what can become of telling
    lifecycle    the table of a report: one for each run and each reporter
    decisions    pure: what becomes of a report when there is news, and when it was told or not
    lanes        one for each reporter, so that one that is down holds up nobody else
    reporter     what ties them to runs: outcomes in, REPORTED out
    outbound_http  requests to addresses that somebody else has named
    reporters    GitHub, signed webhooks, and the log
"""
