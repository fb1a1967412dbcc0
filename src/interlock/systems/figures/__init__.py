"""Figures: the number of submitted and ended jobs, and their durations, for the last seven days."""
