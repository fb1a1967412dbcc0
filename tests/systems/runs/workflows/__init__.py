"""Runs, held against the requirements."""
