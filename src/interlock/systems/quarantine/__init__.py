"""Runners that keep losing work: `lifecycle` is the table, `strikes` the rule, `quarantine` what is done."""
