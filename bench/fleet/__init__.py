"""Benches of the fleet: what an agent costs, and what a controller of many does."""
