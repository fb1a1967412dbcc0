"""Runs: one evaluation of a change each, planned into jobs, executed, and reported once."""
