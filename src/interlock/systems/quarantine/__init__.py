"""Runners that keep losing work: `lifecycle` is the table, `counting` the rule, `quarantine` what is done."""
