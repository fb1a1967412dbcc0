"""Figures: how many jobs were submitted and ended, and how long they took, for the last seven days."""
