"""The drawing of runs."""
